// The place of a thread in a ColumnTile, and the exchange among threads that share a column.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/softmax/softmax_cuda_tile.h"

namespace warpcall::softmax {

struct ThreadPlace {
  int64_t outer;
  int64_t lane;
  int slice;
  bool has_column;

  // Offset of the lane's element 0, counted in lanes.
  __device__ int64_t Offset(const ColumnShape& shape) const {
    return outer * shape.n * shape.lanes + lane;
  }
};

// REQUIRES: blocks of tile.threads() threads.
__device__ inline ThreadPlace PlaceOf(const ColumnShape& shape, const ColumnTile& tile,
                                      int64_t block) {
  WARPCALL_DEVICE_CHECK(static_cast<int>(blockDim.x) == tile.threads());
  const int thread = threadIdx.x;
  const int pile = thread / tile.columns;
  ThreadPlace place;
  place.outer = block / tile.across * tile.slabs + pile / tile.slices;
  place.lane = block % tile.across * tile.columns + thread % tile.columns;
  place.slice = pile % tile.slices;
  place.has_column = place.outer < shape.outer && place.lane < shape.lanes;
  return place;
}

// Every thread gets merge over the slices of its column, for each of kWidth columns. The whole
// block must call; `shared` has a place for every thread.
template <typename Value, int kWidth, int kThreads, typename Merge>
__device__ void MergeSlices(const ColumnTile& tile, Value (&shared)[kWidth][kThreads],
                            Value (&value)[kWidth], Merge merge) {
  WARPCALL_DEVICE_CHECK(tile.threads() <= kThreads);
  if (tile.slices == 1) return;
  const int thread = threadIdx.x;
  const int slice = thread / tile.columns % tile.slices;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) shared[k][thread] = value[k];
  for (int active = tile.slices; active > 1; active = (active + 1) / 2) {
    const int half = (active + 1) / 2;
    __syncthreads();
    if (slice + half >= active) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      shared[k][thread] = merge(shared[k][thread], shared[k][thread + half * tile.columns]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) value[k] = shared[k][thread - slice * tile.columns];
}

}  // namespace warpcall::softmax
