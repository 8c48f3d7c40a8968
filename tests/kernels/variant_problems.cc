#include "tests/kernels/variant_problems.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/check/cases.h"
#include "kernels/gelu/gelu.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"

namespace warpcall::testing {
namespace {

struct ValueName {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return value; }
  template <typename T>
  std::string operator()(T value) const {
    return absl::StrCat(value);
  }
};

std::vector<VariantProblem> GeluVariantProblems(DataType type) {
  std::vector<VariantProblem> problems;
  for (const char* const form : {"none", "tanh"})
    for (const int64_t n : {1, 3, 4, 7, 8, 9, 1023, 1024, 2047, 2048, 2049, 100003})
      problems.push_back(
          NameProblem(GeluOp(), {{type, {n}}}, {{"approximate", std::string(form)}}));
  return problems;
}

// Problems of an op whose cases reach every variant anyway, whatever fills their inputs.
std::vector<VariantProblem> ProblemsOfCases(const Op& op, DataType type) {
  std::vector<VariantProblem> problems;
  if (op.cases == nullptr) return problems;
  for (const Case& of_op : op.cases().cases) {
    if (!of_op.IsFor(type)) continue;
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : of_op.shapes) inputs.push_back({type, dims});
    VariantProblem problem = NameProblem(op, inputs, of_op.attributes);
    const bool is_new = absl::c_none_of(
        problems, [&](const VariantProblem& other) { return other.problem == problem.problem; });
    if (is_new) problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace

VariantProblem NameProblem(const Op& op, const std::vector<TensorSpec>& inputs,
                           const std::vector<NamedAttribute>& attributes) {
  absl::StatusOr<Problem> problem = MakeProblem(op, inputs, attributes);
  if (!problem.ok()) std::abort();
  std::string name = absl::StrCat(
      op.name, " ", absl::StrJoin(inputs, " by ", [](std::string* out, const TensorSpec& spec) {
        absl::StrAppend(out, ToString(spec));
      }));
  for (const NamedAttribute& attribute : attributes)
    absl::StrAppend(&name, " ", attribute.name, "=", std::visit(ValueName(), attribute.value));
  return {std::move(name), *std::move(problem)};
}

std::vector<VariantProblem> VariantProblems(const Op& op, DataType type) {
  if (&op == &SoftmaxOp()) return SoftmaxVariantProblems(type);
  if (&op == &MatmulOp()) return MatmulVariantProblems(type);
  if (&op == &GeluOp()) return GeluVariantProblems(type);
  return ProblemsOfCases(op, type);
}

}  // namespace warpcall::testing
