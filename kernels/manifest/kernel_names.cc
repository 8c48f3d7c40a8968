#include "kernels/manifest/kernel_names.h"

#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/common/check.h"

namespace warpcall::manifest {
namespace {

constexpr absl::string_view kAttribute = "attr.";
constexpr absl::string_view kShape = "shape[";
constexpr absl::string_view kCounts[] = {"rows", "cols", "elements", "sm_count", "zero"};
constexpr absl::string_view kProductSizes[] = {"m", "n", "k", "batch"};

bool IsProduct(const Op& op) {
  return absl::string_view(op.name) == "matmul" || absl::string_view(op.name) == "linear";
}

// "x", "shape[-1]" of "x.shape[-1]".
std::pair<absl::string_view, absl::string_view> SplitName(absl::string_view name) {
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool ReadIndex(absl::string_view member, int* index) {
  return absl::ConsumePrefix(&member, kShape) && absl::ConsumeSuffix(&member, "]") &&
         absl::SimpleAtoi(member, index);
}

int64_t ProductOf(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

}  // namespace

int FindOperand(const Op& op, absl::string_view name) {
  const auto input =
      absl::c_find_if(op.input_names, [&](const char* each) { return name == each; });
  if (input != op.input_names.end() || name == "y" || name == "c")
    return static_cast<int>(input - op.input_names.begin());
  return -1;
}

int FindAttribute(const Op& op, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kAttribute)) return -1;
  const auto found =
      absl::c_find_if(op.attributes, [&](const AttributeSpec& spec) { return name == spec.name; });
  return found == op.attributes.end() ? -1 : static_cast<int>(found - op.attributes.begin());
}

bool IsName(const Op& op, absl::string_view name) {
  if (absl::c_linear_search(kCounts, name)) return true;
  if (IsProduct(op) && absl::c_linear_search(kProductSizes, name)) return true;
  if (const int attribute = FindAttribute(op, name); attribute >= 0) {
    const AttributeValue& value = op.attributes[static_cast<size_t>(attribute)].default_value;
    return std::holds_alternative<int64_t>(value) || std::holds_alternative<bool>(value);
  }
  const auto [operand, member] = SplitName(name);
  int index = 0;
  return FindOperand(op, operand) >= 0 && (member == "rank" || member == "elements" ||
                                           member == "bytes" || ReadIndex(member, &index));
}

std::string NamesOf(const Op& op) {
  std::vector<std::string> names(std::begin(kCounts), std::end(kCounts));
  if (IsProduct(op))
    for (const absl::string_view name : kProductSizes) names.emplace_back(name);
  for (const AttributeSpec& attribute : op.attributes)
    if (std::string name = absl::StrCat(kAttribute, attribute.name); IsName(op, name))
      names.push_back(std::move(name));
  const char* const input = op.input_names[0];
  for (const char* const member : {"shape[i]", "rank", "elements", "bytes"})
    names.push_back(absl::StrCat(input, ".", member));
  std::vector<std::string> others(op.input_names.begin() + 1, op.input_names.end());
  others.push_back("y");
  return absl::StrCat(absl::StrJoin(names, ", "), ", and of ", absl::StrJoin(others, ", "),
                      " likewise");
}

const TensorSpec* NamedProblem::FindTensor(absl::string_view operand) const {
  const auto place = static_cast<size_t>(FindOperand(op, operand));
  if (place == op.input_names.size()) return &problem.outputs[0];
  return place < problem.inputs.size() ? &problem.inputs[place] : nullptr;
}

absl::StatusOr<int64_t> NamedProblem::OperandValue(absl::string_view name) const {
  const auto [operand, member] = SplitName(name);
  const TensorSpec* const tensor = FindTensor(operand);
  if (tensor == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("the problem has no ", operand));
  const auto rank = static_cast<int>(tensor->dims.size());
  if (member == "rank") return rank;
  if (member == "elements") return tensor->elements();
  if (member == "bytes") return static_cast<int64_t>(tensor->bytes());
  int index = 0;
  const bool is_index = ReadIndex(member, &index);
  WARPCALL_CHECK(is_index, name);
  if (index < -rank || index >= rank)
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", operand, " is ", ToString(*tensor), ", of rank ", rank));
  return tensor->dims[static_cast<size_t>(index < 0 ? index + rank : index)];
}

absl::StatusOr<int64_t> NamedProblem::ProductSize(absl::string_view name) const {
  const Dims& c = problem.outputs[0].dims;
  const bool is_matmul = absl::string_view(op.name) == "matmul";
  if (name == "n") return c.back();
  if (name == "k") {
    const Dims& a = problem.inputs[0].dims;
    const int transpose = FindAttribute(op, "attr.transpose_a");
    const bool transposed =
        transpose >= 0 && std::get<bool>(problem.attributes[static_cast<size_t>(transpose)]);
    return transposed ? a[a.size() - 2] : a.back();
  }
  // linear has one product, of all rows.
  const absl::Span<const int64_t> rows = absl::MakeConstSpan(c).first(c.size() - 1);
  if (!is_matmul) return name == "m" ? ProductOf(rows) : 1;
  return name == "m" ? rows.back() : ProductOf(rows.first(rows.size() - 1));
}

absl::StatusOr<int64_t> NamedProblem::ValueOf(absl::string_view name) const {
  const Dims& dims = problem.inputs[0].dims;
  if (name == "cols") return dims.back();
  if (name == "rows") return ProductOf(absl::MakeConstSpan(dims).first(dims.size() - 1));
  if (name == "elements") return problem.inputs[0].elements();
  if (name == "sm_count") return device.multiprocessors;
  if (name == "zero") return 0;
  if (absl::c_linear_search(kProductSizes, name)) return ProductSize(name);
  if (const int attribute = FindAttribute(op, name); attribute >= 0) {
    const AttributeValue& value = problem.attributes[static_cast<size_t>(attribute)];
    if (const bool* const truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
    return std::get<int64_t>(value);
  }
  return OperandValue(name);
}

}  // namespace warpcall::manifest
