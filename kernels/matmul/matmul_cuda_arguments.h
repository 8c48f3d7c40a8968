// A problem as the tiled kernels get it.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul_cuda_runs.h"

namespace warpcall::matmul {

// The batch dimensions of Shape (matmul.h), slowest first. The output's matrices are adjacent, in
// the order of the batch index, so c needs no strides.
inline constexpr int kBatchRankMax = 6;
struct BatchWalk {
  int32_t rank;
  int64_t size[kBatchRankMax];
  int64_t a_stride[kBatchRankMax];
  int64_t b_stride[kBatchRankMax];
};

struct Arguments {
  const void* a;
  const void* b;
  void* c;
  float* partial;  // [split][batch][m][n]; unused without splits
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t batches;
  // Elements between neighbours along the index that is not adjacent.
  int64_t a_stride;
  int64_t b_stride;
  int64_t split_depth;
  uint32_t splits;
  uint32_t tiles_m;
  uint32_t tiles_n;
  uint32_t whole;  // blocks that have a tile, or a split of it, to themselves
  Runs runs;       // of the other blocks, which share the last tiles
  void* left;      // their LeftSums
  BatchWalk batch;
};

// Epilogue that leaves sums as they are before they are rounded. linear's kernels put one with a
// `bias` in its place: From moves it to a column of c, BiasOf reads the bias of the kCount columns
// there, Apply finishes as many sums of a row, and Visit has the compiler know the activation.
struct NoFinish {};

}  // namespace warpcall::matmul
