#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace matmul {
namespace {

constexpr int kMatrixRank = 2;

bool Flag(const Problem& problem, int attribute) {
  return std::get<bool>(problem.attributes[attribute]);
}

// Rows and columns of the two innermost dimensions, after the transposition if there is one.
std::pair<int64_t, int64_t> MatrixSize(const TensorSpec& spec, bool transpose) {
  const size_t rank = spec.dims.size();
  const int64_t slow = spec.dims[rank - 2];
  const int64_t fast = spec.dims[rank - 1];
  return transpose ? std::pair(fast, slow) : std::pair(slow, fast);
}

// The dimension `from_end` places before the matrix, 1 where the tensor has none.
int64_t BatchSize(const TensorSpec& spec, size_t from_end) {
  const size_t batch_rank = spec.dims.size() - kMatrixRank;
  return from_end < batch_rank ? spec.dims[batch_rank - 1 - from_end] : 1;
}

absl::Status CheckTypes(const Problem& problem) {
  const DataType a = problem.inputs[0].data_type;
  const DataType b = problem.inputs[1].data_type;
  if (a != b)
    return absl::InvalidArgumentError(absl::StrCat("matmul takes inputs of one data type, got a ",
                                                   DataTypeName(a), ", b ", DataTypeName(b)));
  if (std::get<std::string>(problem.attributes[kPrecision]) == "tf32" && a != DataType::kFloat32)
    return absl::InvalidArgumentError(
        absl::StrCat("attribute precision=\"tf32\" takes float32 inputs, got ", DataTypeName(a)));
  return absl::OkStatus();
}

absl::Status CheckRank(const TensorSpec& spec, absl::string_view label) {
  if (spec.dims.size() >= kMatrixRank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("matmul: ", label, " has rank ", spec.dims.size(),
                                                 "; ranks ", kMatrixRank, " to ", kRankMax,
                                                 " are allowed"));
}

absl::Status InferOutputs(Problem* problem) {
  const TensorSpec& a = problem->inputs[0];
  const TensorSpec& b = problem->inputs[1];
  RETURN_IF_ERROR(CheckTypes(*problem));
  RETURN_IF_ERROR(CheckRank(a, "input 0 (a)"));
  RETURN_IF_ERROR(CheckRank(b, "input 1 (b)"));
  const auto [m, a_k] = MatrixSize(a, Flag(*problem, kTransposeA));
  const auto [b_k, n] = MatrixSize(b, Flag(*problem, kTransposeB));
  if (a_k != b_k)
    return absl::InvalidArgumentError(
        absl::StrCat("matmul: inner dimensions differ: k is ", a_k, " in a ", ToString(a),
                     Flag(*problem, kTransposeA) ? " (transposed)" : "", " and ", b_k, " in b ",
                     ToString(b), Flag(*problem, kTransposeB) ? " (transposed)" : ""));
  TensorSpec c{.data_type = a.data_type, .dims = {}};
  for (size_t i = std::max(a.dims.size(), b.dims.size()) - kMatrixRank; i-- > 0;) {
    const int64_t a_size = BatchSize(a, i);
    const int64_t b_size = BatchSize(b, i);
    if (a_size != b_size && a_size != 1 && b_size != 1)
      return absl::InvalidArgumentError(absl::StrCat(
          "matmul: batch dimensions do not broadcast: a ", ToString(a), " has ", a_size,
          " where b ", ToString(b), " has ", b_size, "; they must be equal or one of them 1"));
    c.dims.push_back(a_size == 1 ? b_size : a_size);
  }
  c.dims.push_back(m);
  c.dims.push_back(n);
  problem->outputs = {std::move(c)};
  return absl::OkStatus();
}

// flops counts one multiplication and one addition per term.
Work MatmulWork(const Problem& problem) {
  const int64_t k = MatrixSize(problem.inputs[0], Flag(problem, kTransposeA)).second;
  Work work;
  work.bytes = static_cast<int64_t>(problem.outputs[0].bytes());
  for (const TensorSpec& input : problem.inputs)
    work.bytes = SaturatingAdd(work.bytes, static_cast<int64_t>(input.bytes()));
  work.flops = SaturatingMultiply(SaturatingMultiply(problem.outputs[0].elements(), k), 2);
  return work;
}

// Two neighbours walk memory as one when an outer step is the whole of the inner walk, in each
// operand.
bool Mergeable(const BatchDim& outer, const BatchDim& inner) {
  return outer.a_stride == inner.a_stride * inner.size &&
         outer.b_stride == inner.b_stride * inner.size &&
         outer.c_stride == inner.c_stride * inner.size;
}

void AppendBatchDim(const BatchDim& dim, Shape* shape) {
  if (dim.size == 1) return;
  // Called from the fastest dimension outwards; reversed by the caller.
  if (!shape->batch.empty() && Mergeable(dim, shape->batch.back())) {
    shape->batch.back().size *= dim.size;
  } else {
    shape->batch.push_back(dim);
  }
}

// Makes one taller matrix of many that meet the same b: better blocking, one packing of b.
void FoldIntoRows(Shape* shape) {
  if (shape->batch.empty()) return;
  const BatchDim& inner = shape->batch.back();
  if (inner.b_stride != 0 || shape->a_column_stride != 1 || shape->a_row_stride != shape->k ||
      inner.a_stride != shape->m * shape->k)
    return;
  shape->m *= inner.size;
  shape->batch.pop_back();
}

}  // namespace

int64_t Shape::batches() const {
  int64_t count = 1;
  for (const BatchDim& dim : batch) count *= dim.size;
  return count;
}

Offsets Shape::BatchOffsets(int64_t index) const {
  WARPCALL_DCHECK(index >= 0 && index < batches(), index, batches());
  Offsets offsets{0, 0, 0};
  for (size_t i = batch.size(); i-- > 0;) {
    const int64_t at = index % batch[i].size;
    index /= batch[i].size;
    offsets.a += at * batch[i].a_stride;
    offsets.b += at * batch[i].b_stride;
    offsets.c += at * batch[i].c_stride;
  }
  return offsets;
}

Shape DecodeShape(const Problem& problem) {
  WARPCALL_DCHECK(problem.outputs[0].elements() > 0, ToString(problem.outputs[0]));
  const TensorSpec& a = problem.inputs[0];
  const TensorSpec& b = problem.inputs[1];
  const auto [m, k] = MatrixSize(a, Flag(problem, kTransposeA));
  const int64_t n = MatrixSize(b, Flag(problem, kTransposeB)).second;
  // A single row or column lies in memory alike either way: take it as not transposed.
  const bool transpose_a = Flag(problem, kTransposeA) && m != 1 && k != 1;
  const bool transpose_b = Flag(problem, kTransposeB) && n != 1 && k != 1;
  Shape shape{.m = m,
              .n = n,
              .k = k,
              .a_row_stride = transpose_a ? 1 : k,
              .a_column_stride = transpose_a ? m : 1,
              .b_row_stride = transpose_b ? 1 : n,
              .b_column_stride = transpose_b ? k : 1,
              .batch = {}};
  int64_t a_stride = m * k;
  int64_t b_stride = k * n;
  int64_t c_stride = m * n;
  for (size_t i = 0; i < problem.outputs[0].dims.size() - kMatrixRank; ++i) {
    const int64_t a_size = BatchSize(a, i);
    const int64_t b_size = BatchSize(b, i);
    const int64_t size = std::max(a_size, b_size);
    AppendBatchDim({.size = size,
                    .a_stride = a_size == 1 ? 0 : a_stride,
                    .b_stride = b_size == 1 ? 0 : b_stride,
                    .c_stride = c_stride},
                   &shape);
    a_stride *= a_size;
    b_stride *= b_size;
    c_stride *= size;
  }
  std::reverse(shape.batch.begin(), shape.batch.end());
  FoldIntoRows(&shape);
  return shape;
}

bool NothingToSum(const Problem& problem) {
  return problem.outputs[0].elements() == 0 || DecodeShape(problem).k == 0;
}

bool FinishIfNothingToSum(const Problem& problem, const Operands& operands) {
  if (!NothingToSum(problem)) return false;
  if (problem.outputs[0].elements() == 0) return true;
  std::memset(operands.outputs[0], 0, problem.outputs[0].bytes());  // zero in every data type
  return true;
}

}  // namespace matmul

const Op& MatmulOp() {
  static const Op& op = *new Op{
      .name = "matmul",
      .summary = "c[..., m, n] = a[..., m, k] x b[..., k, n]; batch dimensions broadcast",
      .input_names = {"a", "b"},
      .attributes = {{.name = "transpose_a",
                      .summary = "a is [..., k, m]",
                      .default_value = false,
                      .allowed_values = {}},
                     {.name = "transpose_b",
                      .summary = "b is [..., n, k]",
                      .default_value = false,
                      .allowed_values = {}},
                     {.name = "precision",
                      .summary = "tf32 allows products of float32 inputs with 10-bit mantissas",
                      .default_value = std::string("ieee"),
                      .allowed_values = {"ieee", "tf32"}}},
      .infer_outputs = matmul::InferOutputs,
      .work = matmul::MatmulWork,
      .independence = Independence::kProductRows,
      .definition = &matmul::kDefinition,
      .cases = matmul::Cases,
  };
  return op;
}

}  // namespace warpcall
