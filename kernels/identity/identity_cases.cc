#include "kernels/check/cases.h"
#include "kernels/identity/identity.h"

namespace warpcall::identity {
namespace {

// A copy has no error.
std::vector<ElementError> Errors(const Problem&, const Operands&, int64_t,
                                 absl::Span<const double> truth) {
  return std::vector<ElementError>(truth.size());
}

}  // namespace

OpCases Cases() {
  OpCases cases{.cases = {}, .errors = Errors, .tolerance = "every bit is kept", .allowances = {}};
  const std::vector<Dims> shapes = {
      {0},     {1},         {2},          {31},     {1009},
      {0, 5},  {3, 0, 2},   {7, 13},      {4096},   {32768 - 1},
      {32768}, {32768 + 1}, {65536 + 17}, {300001}, {1, 2, 3, 1, 2, 3, 1, 5}};
  for (const Dims& dims : shapes) {
    const std::string name = ToString({DataType::kFloat32, dims});
    cases.cases.push_back({name, {dims}, {}, Fill::kWide});
    cases.cases.push_back({name + " special", {dims}, {}, Fill::kSpecial});
  }
  cases.cases.push_back({"patterns", {{4 * 65536}}, {}, Fill::kPatterns});
  cases.quick = {{"quick", {{1009}}, {}, Fill::kWide},
                 {"quick special", {{7, 13}}, {}, Fill::kSpecial}};
  cases.sized = [](int64_t elements) -> std::vector<Dims> { return {{elements}}; };
  return cases;
}

}  // namespace warpcall::identity
