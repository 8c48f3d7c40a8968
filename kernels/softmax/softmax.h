// softmax: y = exp(x - max) / sum(exp(x - max)) along one axis, as torch.softmax. A row is what
// sums to 1: the elements that differ in their index on the axis only.
//
// A row that holds NaN, +infinity or nothing but -infinity is NaN throughout: infinity minus
// infinity has no limit. -infinity beside finite values gives 0.
#pragma once

#include <vector>

#include "kernels/op.h"
#include "proto/common/check.h"

namespace warpcall {

const Op& SoftmaxOp();

// The rows of the CPU device, in order of preference.
std::vector<Implementation> SoftmaxCpuRows();

// The rows of CUDA devices, in order of preference.
std::vector<Implementation> SoftmaxCudaRows();

namespace softmax {

// Index into Problem::attributes.
inline constexpr int kAxis = 0;

// The tensor as [outer, n, inner]: element j of row (o, i) is at (o x n + j) x inner + i.
struct View {
  int64_t outer;
  int64_t n;
  int64_t inner;

  int64_t rows() const { return outer * inner; }
  // Where element 0 of row 0 <= row < rows() lies.
  int64_t RowOffset(int64_t row) const {
    WARPCALL_DCHECK(row >= 0 && row < rows(), row, outer, inner);
    return row / inner * n * inner + row % inner;
  }
};

// REQUIRES: the tensor has elements.
View ViewOf(const Problem& problem);

// The truth, which the reference row rounds.
extern const Definition kDefinition;

// What the rows are checked on.
OpCases Cases();

// The rows, one per file.
Implementation SimdRowsRow();
Implementation OnednnSoftmaxRow();
Implementation SubwarpPerRowRow();
Implementation WarpPerRowRow();
Implementation BlockPerRowRow();
Implementation ClusterPerRowRow();
Implementation RingPerColumnsRow();
Implementation ClusterPerColumnsRow();
Implementation TwoPassRow();
Implementation ThreadPerColumnRow();
Implementation TritonSoftmaxRow();
Implementation CompiledSoftmaxRow();
Implementation CudnnSoftmaxRow();
Implementation ChainOfKernelsRow();
Implementation ChainOfLoopsRow();
Implementation Float64Row();

}  // namespace softmax
}  // namespace warpcall
