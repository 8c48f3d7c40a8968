// Derives a block's share of a problem from a tiled kernel's arguments.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_arguments.h"
#include "kernels/matmul/matmul_cuda_select.h"

namespace warpcall::matmul {

// Offsets of the operands' matrices in elements.
struct BatchPlace {
  int64_t a;
  int64_t b;
};

__device__ inline BatchPlace PlaceOfBatch(const BatchWalk& walk, int64_t index) {
  BatchPlace place{0, 0};
#pragma unroll
  for (int i = kBatchRankMax - 1; i >= 0; --i) {
    if (i >= walk.rank) continue;
    const int64_t at = index % walk.size[i];
    index /= walk.size[i];
    place.a += at * walk.a_stride[i];
    place.b += at * walk.b_stride[i];
  }
  return place;
}

// One block's share: the tile of c that begins at (m, n), summed over k_begin <= k < k_end.
struct BlockShare {
  int64_t a;  // the start of its batch
  int64_t b;
  int64_t c;  // also of the partial sums
  int64_t m;
  int64_t n;
  int64_t k_begin;
  int64_t k_end;
};

// The share of block `index` of those that have a tile or a split of it. They count tiles first,
// then splits, then batches.
template <int kTileM, int kTileN>
__device__ BlockShare ShareOfBlock(const Arguments& arguments, uint32_t index) {
  const uint32_t tiles = arguments.tiles_m * arguments.tiles_n;
  const TilePlace place = PlaceOf(index % tiles, arguments.tiles_m, arguments.tiles_n);
  const uint32_t outer = index / tiles;
  const int64_t split = outer % arguments.splits;
  const int64_t batch = outer / arguments.splits;
  const BatchPlace at = PlaceOfBatch(arguments.batch, batch);
  const int64_t k_begin = split * arguments.split_depth;
  WARPCALL_DEVICE_CHECK(batch < arguments.batches && k_begin < arguments.k);
  const int64_t k_end = k_begin + arguments.split_depth;
  return {.a = at.a,
          .b = at.b,
          .c = (split * arguments.batches + batch) * arguments.m * arguments.n,
          .m = int64_t{1} * place.m * kTileM,
          .n = int64_t{1} * place.n * kTileN,
          .k_begin = k_begin,
          .k_end = k_end < arguments.k ? k_end : arguments.k};
}

}  // namespace warpcall::matmul
