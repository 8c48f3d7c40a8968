#include "kernels/matmul/cublaslt_call.h"

#include <algorithm>
#include <string>

#include "proto/common/check.h"

namespace warpcall::matmul {
namespace {

// The largest power of two that divides the address of every batch's matrix. Strides within the
// call count too: the library sees them, but is not known to look at their alignment.
int32_t AlignmentOf(const Shape& shape, int64_t BatchDim::*stride, DataType type) {
  int64_t alignment = kOperandAlignmentBytes;
  for (const BatchDim& dim : shape.batch) {
    const int64_t bytes = dim.*stride * static_cast<int64_t>(ElementBytes(type));
    if (bytes != 0) alignment = std::min(alignment, bytes & -bytes);
  }
  return static_cast<int32_t>(alignment);
}

// The row-major `rows` x `columns` matrix, of which one stride is 1: its transpose if the other one
// steps from row to row.
CublasLtMatrix Transposed(int64_t rows, int64_t columns, int64_t row_stride,
                          int64_t column_stride) {
  CublasLtMatrix matrix{};
  matrix.transpose = column_stride != 1;
  matrix.rows = matrix.transpose ? rows : columns;
  matrix.columns = matrix.transpose ? columns : rows;
  matrix.leading_dimension = matrix.transpose ? column_stride : row_stride;
  return matrix;
}

}  // namespace

CublasLtCalls MakeCublasLtCalls(const Problem& problem) {
  Shape shape = DecodeShape(problem);
  WARPCALL_DCHECK(shape.k > 0, shape.k);
  CublasLtCall call{
      .tf32 = std::get<std::string>(problem.attributes[kPrecision]) == "tf32",
      .batch_count = 1,
      .first = Transposed(shape.k, shape.n, shape.b_row_stride, shape.b_column_stride),
      .second = Transposed(shape.m, shape.k, shape.a_row_stride, shape.a_column_stride),
      .output = Transposed(shape.m, shape.n, shape.n, 1)};
  call.first.data_type = call.second.data_type = problem.inputs[0].data_type;
  call.output.data_type = problem.outputs[0].data_type;
  call.first.alignment_bytes = AlignmentOf(shape, &BatchDim::b_stride, call.first.data_type);
  call.second.alignment_bytes = AlignmentOf(shape, &BatchDim::a_stride, call.second.data_type);
  call.output.alignment_bytes = AlignmentOf(shape, &BatchDim::c_stride, call.output.data_type);
  const auto longest =
      std::max_element(shape.batch.begin(), shape.batch.end(),
                       [](const BatchDim& x, const BatchDim& y) { return x.size < y.size; });
  if (longest != shape.batch.end()) {
    call.batch_count = longest->size;
    call.first.batch_stride = longest->b_stride;
    call.second.batch_stride = longest->a_stride;
    call.output.batch_stride = longest->c_stride;
    shape.batch.erase(longest);
  }
  return {call, shape};
}

}  // namespace warpcall::matmul
