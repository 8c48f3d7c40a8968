// Loaders that bring an operand's tile into shared memory for mma_tiled. Both take three steps per
// stage of the ring: Issue begins a part of it, Land ends it, Advance moves on to the next.
// Elements outside the operand, or outside the block's terms of k, become zero.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_layout.h"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_walk.cuh"

namespace warpcall::matmul {

// Loads by 16-byte copies that bypass the registers. REQUIRES: rows begin at multiples of 16 bytes
// and have a multiple of 8 elements, so that each chunk is valid as a whole or not at all.
template <typename T, Adjacent kAdjacent, typename Layout, int kThreads>
class CopyLoader {
 public:
  __device__ explicit CopyLoader(const Source<T>& source) : walker_(source) {
    WARPCALL_DEVICE_CHECK(source.stride % kChunkElements == 0);
  }

  // Part `kPart` of `kParts` of the stage at `stage`, of which `depth` terms of k are valid.
  template <int kPart, int kParts>
  __device__ void Issue(uint32_t stage, int depth) {
#pragma unroll
    for (int pass = kPasses * kPart / kParts; pass < kPasses * (kPart + 1) / kParts; ++pass) {
      const uint32_t chunk = walker_.Column(pass) / kChunkElements;
      CopyAsync<kChunkBytes>(stage + ChunkOffset<Layout::kRowChunks>(walker_.Row(pass), chunk),
                             walker_.From(pass), walker_.Valid(pass, depth));
    }
  }

  __device__ void Land(uint32_t /*stage*/) {}
  __device__ void Advance() { walker_.Advance(); }

 private:
  using Pieces = Walk<kAdjacent, Layout::kOuterSize, Layout::kDepthSize, kThreads, kChunkElements,
                      Layout::kRowChunks>;
  static constexpr int kPasses = Pieces::kPasses;
  Walker<T, Pieces> walker_;
};

// Element by element, through registers: for rows that begin anywhere.
template <typename T, Adjacent kAdjacent, typename Layout, int kThreads>
class ElementLoader {
 public:
  __device__ explicit ElementLoader(const Source<T>& source) : walker_(source) {}

  template <int kPart, int kParts>
  __device__ void Issue(uint32_t /*stage*/, int depth) {
#pragma unroll
    for (int pass = kPasses * kPart / kParts; pass < kPasses * (kPart + 1) / kParts; ++pass)
      held_[pass] = walker_.Valid(pass, depth) ? walker_.From(pass)->bits : uint16_t{0};
  }

  __device__ void Land(uint32_t stage) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const uint32_t chunk = walker_.Column(pass) / kChunkElements;
      const uint32_t within = walker_.Column(pass) % kChunkElements * sizeof(T);
      StoreShared16(stage + ChunkOffset<Layout::kRowChunks>(walker_.Row(pass), chunk) + within,
                    held_[pass]);
    }
  }

  __device__ void Advance() { walker_.Advance(); }

 private:
  using Pieces = Walk<kAdjacent, Layout::kOuterSize, Layout::kDepthSize, kThreads, 1,
                      Layout::kRowChunks * kChunkElements>;
  static constexpr int kPasses = Pieces::kPasses;
  Walker<T, Pieces> walker_;
  uint16_t held_[kPasses];
};

}  // namespace warpcall::matmul
