// matmul: c[..., m, n] = a[..., m, k] x b[..., k, n], batch dimensions broadcast as numpy.matmul
// does. transpose_a: a is [..., k, m]; transpose_b: b is [..., n, k]. Sums are float32 (float64 in
// the reference) in an order that each implementation chooses, rounded once to the output type. k =
// 0 gives zeros.
//
// In every implementation NaN and infinity propagate as IEEE arithmetic has it, 0 x infinity = NaN
// included. Only where a partial sum of finite terms may leave float32's range does the result
// depend on the order: such an output may be infinite or NaN.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "kernels/op.h"

namespace warpcall {

const Op& MatmulOp();

// The implementations for the CPU device, in order of preference.
std::vector<Implementation> MatmulCpuRows();

// The implementations for a GPU, in order of preference.
std::vector<Implementation> MatmulCudaRows();

namespace matmul {

// Indices into Problem::attributes.
inline constexpr int kTransposeA = 0;
inline constexpr int kTransposeB = 1;
inline constexpr int kPrecision = 2;

// `size` matrices of each operand, `*_stride` elements apart; 0 where the operand is broadcast.
struct BatchDim {
  int64_t size;
  int64_t a_stride;
  int64_t b_stride;
  int64_t c_stride;
};

// Offsets of the matrices of one multiplication of a batch, in elements.
struct Offsets {
  int64_t a;
  int64_t b;
  int64_t c;
};

// A problem with at least one output element, as `batches()` multiplications of one size. Batch
// dimensions are merged where strides allow; a batch of `a` that meets one and the same `b` is
// folded into m.
struct Shape {
  int64_t m;
  int64_t n;
  int64_t k;
  // Element (row, column) of a matrix is at row * row_stride + column * column_stride; one of the
  // two is 1.
  int64_t a_row_stride;
  int64_t a_column_stride;
  int64_t b_row_stride;
  int64_t b_column_stride;
  absl::InlinedVector<BatchDim, kRankMax - 2> batch;  // slowest first

  int64_t batches() const;
  Offsets BatchOffsets(int64_t index) const;  // 0 <= index < batches()
};

// REQUIRES: the output of `problem` has elements.
Shape DecodeShape(const Problem& problem);

// For implementations that leave problems with nothing to sum to it. If there is no output element
// or k is 0, writes the outputs, which are zeros, and returns true.
bool FinishIfNothingToSum(const Problem& problem, const Operands& operands);
// Returns true if FinishIfNothingToSum would.
bool NothingToSum(const Problem& problem);

// The exact definition, which the reference implementation rounds.
extern const Definition kDefinition;

// The cases on which the implementations are checked.
OpCases Cases();

// The implementations, one per file.
Implementation OneDotPerOutputRow();
Implementation SimdTiledRow();
Implementation OnednnRow();
Implementation CublasltRow();
Implementation DotPerOutputRow();
Implementation WgmmaTiledRow();
Implementation WgmmaTf32Row();
Implementation MmaTiledRow();
Implementation RegisterTiledRow();
Implementation TritonMatmulRow();
Implementation ThreadPerOutputRow();
Implementation Float64Row();

}  // namespace matmul
}  // namespace warpcall
