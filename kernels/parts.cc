// Divides problems into parts that do not depend on each other.
#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "kernels/op.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

size_t IndexOf(const Op& op, absl::string_view attribute) {
  for (size_t i = 0; i < op.attributes.size(); ++i)
    if (attribute == op.attributes[i].name) return i;
  WARPCALL_CHECK(false, op.name, attribute);
}

// The attribute "axis" of a problem of `op`, counted from the front.
size_t AxisOf(const Op& op, const Problem& problem) {
  const int64_t given = std::get<int64_t>(problem.attributes[IndexOf(op, "axis")]);
  const auto rank = static_cast<int64_t>(problem.inputs[0].dims.size());
  WARPCALL_DCHECK(given >= -rank && given < rank, given, rank);
  return static_cast<size_t>(given < 0 ? given + rank : given);
}

int64_t Product(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

// Returns the dimensions before the last `kept`.
absl::Span<const int64_t> Outer(const TensorSpec& spec, size_t kept) {
  WARPCALL_DCHECK(kept <= spec.dims.size(), kept, spec.dims.size());
  return absl::MakeConstSpan(spec.dims).first(spec.dims.size() - kept);
}

bool IsOneRow(const TensorSpec& spec) { return Product(Outer(spec, 1)) == 1; }

// REQUIRES: a problem of Independence::kBroadcastRows.
bool FallsIntoRows(const Op& op, const Problem& problem) {
  const absl::Span<const int64_t> outer = Outer(problem.outputs[0], 1);
  if (Product(outer) == 1 || (op.is_one_piece != nullptr && op.is_one_piece(problem))) return false;
  return absl::c_all_of(problem.inputs, [&](const TensorSpec& input) {
    return IsOneRow(input) || Outer(input, 1) == outer;
  });
}

// Returns true if rows of a meet the same b. REQUIRES: Independence::kProductRows.
bool RowsShareB(const Op& op, const Problem& problem) {
  return problem.inputs[1].dims.size() == 2 &&
         !std::get<bool>(problem.attributes[IndexOf(op, "transpose_a")]);
}

// The division of a problem into parts.
struct Division {
  // Number of trailing dimensions that each split operand keeps. The dimensions before those become
  // one, that of the parts.
  size_t kept = 0;
  bool one_piece = false;
};

Division DivisionOf(const Op& op, const Problem& problem) {
  WARPCALL_DCHECK(problem.attributes.size() == op.attributes.size(), op.name);
  switch (op.independence) {
    case Independence::kNone:
      break;
    case Independence::kElements:
      return {.kept = 0};
    case Independence::kBeforeAxis:
      return {.kept = problem.inputs[0].dims.size() - AxisOf(op, problem)};
    case Independence::kRows:
      return {.kept = 1};
    case Independence::kBroadcastRows:
      return {.kept = 1, .one_piece = !FallsIntoRows(op, problem)};
    case Independence::kProductRows: {
      if (RowsShareB(op, problem)) return {.kept = 1};
      const TensorSpec& a = problem.inputs[0];
      const TensorSpec& b = problem.inputs[1];
      return {.kept = 2, .one_piece = a.dims.size() == 2 || Outer(a, 2) != Outer(b, 2)};
    }
  }
  return {.one_piece = true};
}

// Merges the dimensions behind the axis into one, for kBeforeAxis.
void FlattenInner(TensorSpec* spec) {
  const int64_t inner = Product(absl::MakeConstSpan(spec->dims).subspan(2));
  spec->dims.resize(2);
  if (inner > 1) spec->dims.push_back(inner);
}

}  // namespace

int64_t PartsOf(const Op& op, const Problem& problem) {
  const Division division = DivisionOf(op, problem);
  if (division.one_piece) return 1;
  const TensorSpec& output = problem.outputs[0];
  if (output.elements() == 0) return 0;
  return Product(Outer(output, division.kept));
}

OperandRole RoleOf(const Op& op, const Problem& problem, size_t operand) {
  WARPCALL_DCHECK(operand < problem.inputs.size() + problem.outputs.size(), op.name, operand);
  const bool input = operand < problem.inputs.size();
  bool shared = operand < std::min(op.input_roles.size(), problem.inputs.size()) &&
                op.input_roles[operand] == OperandRole::kShared;
  if (op.independence == Independence::kBroadcastRows)
    shared = input && FallsIntoRows(op, problem) && IsOneRow(problem.inputs[operand]);
  if (op.independence == Independence::kProductRows)
    shared = operand == 1 && RowsShareB(op, problem);
  return shared ? OperandRole::kShared : OperandRole::kSplit;
}

size_t BytesOf(const Op& op, const Problem& problem, OperandRole role) {
  size_t bytes = 0;
  size_t operand = 0;
  const auto add = [&](const TensorSpec& spec) {
    if (RoleOf(op, problem, operand++) == role) bytes += spec.bytes();
  };
  absl::c_for_each(problem.inputs, add);
  absl::c_for_each(problem.outputs, add);
  return bytes;
}

Problem TakeParts(const Op& op, const Problem& problem, int64_t count) {
  WARPCALL_DCHECK(count >= 1 && count <= PartsOf(op, problem), count, PartsOf(op, problem));
  const Division division = DivisionOf(op, problem);
  if (division.one_piece) return problem;
  Problem part = problem;
  size_t operand = 0;
  const auto take = [&](TensorSpec& spec) {
    const bool shared = RoleOf(op, problem, operand++) == OperandRole::kShared;
    // One row of more dimensions than the others' two would give the output as many.
    const bool shortened = shared && op.independence == Independence::kBroadcastRows;
    if (shared && !shortened) return;
    Dims dims;
    if (!shared) dims.push_back(count);
    dims.insert(dims.end(), spec.dims.end() - static_cast<std::ptrdiff_t>(division.kept),
                spec.dims.end());
    spec.dims = std::move(dims);
    if (op.independence == Independence::kBeforeAxis) FlattenInner(&spec);
  };
  absl::c_for_each(part.inputs, take);
  absl::c_for_each(part.outputs, take);
  if (op.independence == Independence::kBeforeAxis)
    part.attributes[IndexOf(op, "axis")] = int64_t{1};
  return part;
}

}  // namespace warpcall
