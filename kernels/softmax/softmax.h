// softmax: y = exp(x - max) / sum(exp(x - max)) along one axis, as torch.softmax. The elements that
// differ only in their index on the axis form a row, which sums to 1.
//
// A row that holds NaN, +infinity or nothing but -infinity is NaN throughout: infinity minus
// infinity has no limit. -infinity beside finite values gives 0.
#pragma once

#include <vector>

#include "kernels/op.h"
#include "proto/common/check.h"

namespace warpcall {

const Op& SoftmaxOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> SoftmaxCpuRows();

// The implementations for CUDA devices, in order of preference.
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
  // Index of element 0 of row 0 <= row < rows().
  int64_t RowOffset(int64_t row) const {
    WARPCALL_DCHECK(row >= 0 && row < rows(), row, outer, inner);
    return row / inner * n * inner + row % inner;
  }
};

// REQUIRES: the tensor has elements.
View ViewOf(const Problem& problem);

// The exact definition, which the reference implementation rounds.
extern const Definition kDefinition;

// The cases on which the implementations are checked.
OpCases Cases();

// The implementations, one per file.
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
