#include "kernels/check/cases.h"
#include "tests/ops/relu/relu.h"

namespace warpcall::relu {
namespace {

// Nothing is rounded.
std::vector<ElementError> Errors(const Problem&, const Operands&, int64_t,
                                 absl::Span<const double> truth) {
  return std::vector<ElementError>(truth.size());
}

}  // namespace

OpCases Cases() {
  OpCases cases{.cases = {}, .errors = Errors, .tolerance = "every bit is right", .allowances = {}};
  for (const Dims& dims : std::vector<Dims>{{0}, {1}, {7, 13}, {4097}, {100003}}) {
    const std::string name = ToString({DataType::kFloat32, dims});
    cases.cases.push_back({name, {dims}, {}, Fill::kNormal});
    cases.cases.push_back({name + " special", {dims}, {}, Fill::kSpecial});
  }
  cases.cases.push_back({"patterns", {{4 * 65536}}, {}, Fill::kPatterns});
  cases.quick = {{"quick", {{1009}}, {}, Fill::kSpecial}};
  cases.sized = [](int64_t elements) -> std::vector<Dims> { return {{elements}}; };
  return cases;
}

}  // namespace warpcall::relu
