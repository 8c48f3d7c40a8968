// wgmma_tiled: tiles of c on Hopper's tensor cores, as its warp-specialised kernels do it
// (CUTLASS's and DeepGEMM's; P. Shah, "Outperforming cuBLAS on H100", 2024). One thread of a block
// copies boxes of a and b into a ring of stages in shared memory by the tensor memory accelerator;
// the other warpgroups multiply 64 rows each straight out of it. Barriers count the bytes that have
// come and the warps that are done with a stage, so that nobody waits for the whole block. A block
// goes from tile to tile, and its next tile is on its way while the last is written. Per tile
// (m + n) x k elements are read, through L2 and for b once per cluster, and m x n written once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_arguments.h"
#include "kernels/matmul/matmul_cuda_wgmma_multiply.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_tiles.h"

namespace warpcall::matmul {

// What a kernel is compiled for, as a type: nvcc 13.0 takes no values of class type as parameters
// of kernels.
template <int kTileIndex, Adjacent kAdjacentA, Adjacent kAdjacentB>
struct WgmmaVariant {
  static constexpr WgmmaTile kTile = kWgmmaTiles[kTileIndex];
  static constexpr Adjacent kA = kAdjacentA;
  static constexpr Adjacent kB = kAdjacentB;
};

// By its number.
template <int kNumber, bool kAlongK = false, WgmmaChoice kAt = WgmmaVariants{kAlongK}.At(kNumber)>
using WgmmaVariantAt = WgmmaVariant<kAt.tile, kAt.a, kAt.b>;

template <typename T, typename Variant>
struct WgmmaKernel {
  static constexpr WgmmaTile kTile = Variant::kTile;
  static constexpr int kConsumers = kTile.consumers();
  static constexpr int kConsumerWarps = kConsumers * 4;
  static constexpr int kBlocks = kTile.blocks;  // of the cluster
  static constexpr int kAcross = kTile.across();
  static constexpr int kSplits = kTile.splits();
  // Of 168 for each of 384 threads.
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  static constexpr uint32_t kRowBytes = kWgmmaRowBytes;
  static constexpr uint32_t kDepth = kRowBytes / sizeof(T);
  static constexpr uint32_t kChunk = 64;  // outer indices in a box where k is not adjacent
  static constexpr uint32_t kChunkBytes = kChunk * kRowBytes;
  static constexpr uint32_t kBytesA = kTile.m * kRowBytes;
  static constexpr uint32_t kBytesB = kTile.n * kRowBytes;
  static constexpr uint32_t kStageBytes = kBytesA + kBytesB;
  static constexpr uint32_t kShareB = kTile.n / kAcross;  // that a block copies for its cluster
  static constexpr uint32_t kSteps = kRowBytes / 32;      // of 32 bytes of k
  static constexpr uint32_t kBoxRows = kWgmmaBoxRows;
  static constexpr uint32_t kBoxColumns = kRowBytes / sizeof(T);
  static constexpr uint32_t kBoxBytes = kBoxRows * kRowBytes;
  static constexpr int kBoxes = kTile.n / kBoxColumns;

  static constexpr bool kIsNarrow = sizeof(T) == 2;
  static_assert(kIsNarrow || (Variant::kA == Adjacent::kDepth && Variant::kB == Adjacent::kDepth),
                "operands of tf32 lie along k");
  static_assert(kTile.m % 64 == 0 && kTile.n % kBoxColumns == 0 && kTile.m <= 256);
  static_assert(kTile.n <= 256 && kShareB % 8 == 0);
  static_assert(int64_t{kSplits - 1} * kTile.m * kTile.n * 4 <= int64_t{WgmmaRingBytes(kTile)},
                "the other blocks' sums lie in the first one's ring");

  using Sums = float[kTile.n / 2];
  using Multiplier = Wgmma<T, Variant::kA, Variant::kB>;

  // Parts of a block's shared memory.
  struct Memory {
    uint32_t ring;

    __device__ uint32_t Stage(uint32_t slot) const { return ring + slot * kStageBytes; }
    __device__ uint32_t Boxes(uint32_t warp) const {
      return ring + kTile.stages * kStageBytes + warp * 2 * kBoxBytes;
    }
    __device__ uint32_t Full(uint32_t slot) const { return Boxes(kConsumerWarps) + slot * 8; }
    __device__ uint32_t Empty(uint32_t slot) const { return Full(kTile.stages + slot); }
  };

  // A place in the ring and the parity of the round in it.
  struct Slot {
    uint32_t index = 0;
    uint32_t parity = 0;
    __device__ void Advance() {
      if (++index < kTile.stages) return;
      index = 0;
      parity ^= 1;
    }
  };

  // A tile's corner, and its batch's matrices.
  struct Place {
    int32_t m;
    int32_t n;
    int32_t a;
    int32_t b;
    int32_t c;
  };

  __device__ static Place PlaceOfWork(const WgmmaArguments& arguments, uint32_t index) {
    const uint32_t rows = (arguments.of.tiles_m + kAcross - 1) / kAcross;
    const uint32_t tiles = rows * arguments.of.tiles_n;
    uint32_t batch = index / tiles;
    const TilePlace tile =
        PlaceOf(index % tiles, rows, arguments.of.tiles_n, arguments.of.group_rows);
    Place place{
        .m = static_cast<int32_t>((tile.m * kAcross + (kAcross > 1 ? Rank() : 0)) * kTile.m),
        .n = static_cast<int32_t>(tile.n * kTile.n),
        .a = 0,
        .b = 0,
        .c = static_cast<int32_t>(batch)};
    for (int i = arguments.of.batch.rank - 1; i >= 0; --i) {
      const auto size = static_cast<uint32_t>(arguments.of.batch.size[i]);
      const auto at = static_cast<int32_t>(batch % size);
      batch /= size;
      place.a += at * static_cast<int32_t>(arguments.of.batch.a_stride[i]);
      place.b += at * static_cast<int32_t>(arguments.of.batch.b_stride[i]);
    }
    return place;
  }

  __device__ static uint32_t Rank() { return kBlocks == 1 ? 0 : ClusterRank(); }

  // This block's steps of k: all of them, or its part of the cluster's.
  struct Steps {
    uint32_t begin;
    uint32_t end;
  };
  __device__ static Steps StepsOf(const WgmmaArguments& arguments) {
    if constexpr (kSplits == 1) return {0, arguments.of.steps};
    const uint32_t rank = Rank();
    return {arguments.of.steps * rank / kSplits, arguments.of.steps * (rank + 1) / kSplits};
  }

  __device__ static void LoadA(const WgmmaArguments& arguments, const Place& place, int32_t k,
                               Landing landing) {
    if constexpr (Variant::kA == Adjacent::kDepth) {
      LoadBox(&arguments.a, {k, place.m, place.a}, landing);
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kTile.m; i += kChunk, landing.to += kChunkBytes)
        LoadBox(&arguments.a, {place.m + static_cast<int32_t>(i), k, place.a}, landing);
    }
  }

  __device__ static void LoadBoxOfB(const WgmmaArguments& arguments, const Coordinates& at,
                                    const Landing& landing) {
    if constexpr (kAcross == 1) {
      LoadBox(&arguments.b, at, landing);
    } else {
      LoadBoxForAll(&arguments.b, at, landing, (1 << kAcross) - 1);
    }
  }

  // The block's share of its cluster's b: as many columns as the others', or every so many chunks.
  __device__ static void LoadB(const WgmmaArguments& arguments, const Place& place, int32_t k,
                               const Landing& landing) {
    const uint32_t rank = kAcross > 1 ? Rank() : 0;
    if constexpr (Variant::kB == Adjacent::kDepth) {
      const uint32_t share = rank * kShareB;
      LoadBoxOfB(arguments, {k, place.n + static_cast<int32_t>(share), place.b},
                 {landing.to + share * kRowBytes, landing.barrier});
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kTile.n / kChunk; ++i) {
        if (i % kAcross != rank) continue;
        LoadBoxOfB(arguments, {place.n + static_cast<int32_t>(i * kChunk), k, place.b},
                   {landing.to + i * kChunkBytes, landing.barrier});
      }
    }
  }

  // Clusters go through the work in turns.
  __device__ static uint32_t FirstWork() { return blockIdx.x / kBlocks; }
  __device__ static uint32_t NextWork() { return gridDim.x / kBlocks; }

  // The thread that copies: a stage as soon as every warp that reads it, in all blocks of the
  // cluster, is done with what was there.
  __device__ static void Produce(const Memory& memory, const WgmmaArguments& arguments) {
    Slot slot;
    const Steps steps = StepsOf(arguments);
    for (uint32_t work = FirstWork(); work < arguments.of.work; work += NextWork()) {
      const Place place = PlaceOfWork(arguments, work);
      for (uint32_t step = steps.begin; step < steps.end; ++step) {
        WaitFor(memory.Empty(slot.index), slot.parity ^ 1);
        const uint32_t full = memory.Full(slot.index);
        ArriveExpecting(full, kStageBytes);
        const uint32_t stage = memory.Stage(slot.index);
        const auto k = static_cast<int32_t>(step * kDepth);
        LoadA(arguments, place, k, {stage, full});
        LoadB(arguments, place, k, {stage + kBytesA, full});
        slot.Advance();
      }
    }
  }

  // This warp is done with a stage, of which b may be another block's copy.
  __device__ static void Release(const Memory& memory, uint32_t slot) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (kAcross == 1) {
      if (lane == 0) Arrive(memory.Empty(slot));
    } else {
      if (lane < kAcross) ArriveAt(memory.Empty(slot), lane);
    }
  }

  // A stage's products, as one group.
  __device__ static void MultiplyStage(uint32_t stage, uint32_t consumer, bool add, Sums& sums) {
    const uint64_t a = DescriptorOf<Variant::kA>(stage + consumer * kChunkBytes);
    const uint64_t b = DescriptorOf<Variant::kB>(stage + kBytesA);
    FenceSums();
#pragma unroll
    for (uint32_t i = 0; i < kSteps; ++i)
      Multiplier::Multiply(sums, a + i * kDescriptorStep<Variant::kA>,
                           b + i * kDescriptorStep<Variant::kB>, add || i > 0);
    CommitProducts();
  }

  // All of a tile's products. A stage is given back when those of the next are under way, so that
  // the tensor cores do not wait in between.
  __device__ static void Accumulate(const Memory& memory, uint32_t steps, Slot& slot, Sums& sums) {
    const uint32_t consumer = threadIdx.x / 128 - 1;
    uint32_t before = slot.index;
    for (uint32_t step = 0; step < steps; ++step) {
      WaitFor(memory.Full(slot.index), slot.parity);
      MultiplyStage(memory.Stage(slot.index), consumer, step > 0, sums);
      if (step > 0) {
        WaitForProducts<1>();
        Release(memory, before);
      }
      before = slot.index;
      slot.Advance();
    }
    WaitForProducts<0>();
    Release(memory, before);
  }

  // Bias and the like, on 16 columns of the warp's rows that begin at column `n`.
  template <typename Finish>
  __device__ static void Apply(const Finish& finish, int64_t n, int64_t columns, float* sums) {
    const int64_t at = n + threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pair = finish.From(at + half * 8).template BiasOf<2>(columns - at - half * 8);
      typename Finish::template BiasOfColumns<4> bias;
      float values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bias.values[i] = pair.values[i % 2];
        values[i] = sums[half * 4 + i];
      }
      finish.Apply(bias, values);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[half * 4 + i] = values[i];
    }
  }

  // Rounds 16 columns of the warp's rows and puts them into its box, from `column` on. Its 128-byte
  // rows are swizzled as copies have it: chunks of 16 bytes exclusive-ored with the row.
  __device__ static void StoreColumns(uint32_t box, uint32_t column, const float* sums) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (kIsNarrow) {
      uint32_t rounded[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) rounded[i] = cuda::NarrowPair<T>(sums[2 * i], sums[2 * i + 1]);
      const uint32_t row = lane % 16;
      const uint32_t chunk = column / 8 + lane / 16;
      StoreMatrices(box + row * kRowBytes + (chunk ^ row % 8) * 16, rounded);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t row = lane / 4 + i % 2 * 8;
        const uint32_t chunk = column / 4 + i / 2 * 2 + lane % 4 / 2;
        StoreShared64(box + row * kRowBytes + (chunk ^ row % 8) * 16 + lane % 2 * 8, sums[2 * i],
                      sums[2 * i + 1]);
      }
    }
  }

  // Where c's rows are no whole vectors: element by element out of the box.
  __device__ static void StoreElements(uint32_t box, const WgmmaArguments& arguments,
                                       const Coordinates& at) {
    constexpr uint32_t kWidth = 16 / sizeof(T);
    T* const out = static_cast<T*>(arguments.out) + at.z * arguments.of.m * arguments.of.n;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 4
    for (uint32_t i = lane; i < kBoxRows * kBoxColumns; i += 32) {
      const uint32_t row = i / kBoxColumns;
      const uint32_t column = i % kBoxColumns;
      if (at.y + row >= arguments.of.m || at.x + column >= arguments.of.n) continue;
      const uint32_t from = box + row * kRowBytes + (column / kWidth ^ row % 8) * 16 +
                            column % kWidth * static_cast<uint32_t>(sizeof(T));
      T* const to = out + (at.y + row) * arguments.of.n + at.x + column;
      if constexpr (kIsNarrow) {
        *to = {LoadShared16(from)};
      } else {
        *to = LoadSharedFloat(from);
      }
    }
  }

  // Where a tile's outputs go, and what becomes of them on the way.
  template <typename Finish>
  struct Target {
    const WgmmaArguments& arguments;
    const Place place;
    const Finish& finish;
  };

  // The warp's rows of the tile, a box at a time: the copy of one runs while the next is rounded.
  template <typename Finish>
  __device__ static void Store(uint32_t boxes, Sums& sums, const Target<Finish>& target) {
    const WgmmaArguments& arguments = target.arguments;
    const Place& place = target.place;
    const uint32_t lane = threadIdx.x % 32;
    const int32_t row = place.m + static_cast<int32_t>(threadIdx.x / 32 - 4) * kBoxRows;
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const uint32_t box = boxes + i % 2 * kBoxBytes;
      const Coordinates at = {place.n + i * static_cast<int32_t>(kBoxColumns), row, place.c};
      // A tile's first box may be the one that was stored last.
      if (lane == 0) i == 0 ? WaitForStoresToRead<0>() : WaitForStoresToRead<1>();
      __syncwarp();
#pragma unroll
      for (int j = 0; j < static_cast<int>(kBoxColumns) / 16; ++j) {
        float* const columns = &sums[i * kBoxColumns / 2 + j * 8];
        if constexpr (!std::is_same_v<Finish, NoFinish>)
          Apply(target.finish, at.x + j * 16, arguments.of.n, columns);
        StoreColumns(box, j * 16, columns);
      }
      FenceForCopies();
      __syncwarp();
      if (!arguments.of.c_in_boxes) {
        StoreElements(box, arguments, at);
        continue;
      }
      if (lane == 0) {
        StoreBox(&arguments.c, at, box);
        CommitStores();
      }
    }
  }

  // Where a cluster shares a tile: the first block, whose ring nobody needs any more, gets the
  // others' sums and adds them in the order of their parts of k. False for the others, which then
  // have nothing to write. All threads of the cluster come to both barriers.
  __device__ static bool Gather(const Memory& memory, Sums& sums) {
    constexpr uint32_t kFours = kTile.n / 2 / 4;
    constexpr uint32_t kThreads = kConsumers * 128;
    const uint32_t rank = Rank();
    const uint32_t thread = threadIdx.x - 128;
    ClusterSync();
    if (rank > 0) {
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i)
        StoreFourAt(memory.ring + (((rank - 1) * kFours + i) * kThreads + thread) * 16, 0,
                    &sums[i * 4]);
    }
    ClusterSync();
    if (rank > 0) return false;
#pragma unroll
    for (uint32_t part = 0; part + 1 < kSplits; ++part) {
#pragma unroll
      for (uint32_t i = 0; i < kFours; ++i) {
        const uint4 four =
            LoadShared128(memory.ring + ((part * kFours + i) * kThreads + thread) * 16);
        sums[i * 4] += __uint_as_float(four.x);
        sums[i * 4 + 1] += __uint_as_float(four.y);
        sums[i * 4 + 2] += __uint_as_float(four.z);
        sums[i * 4 + 3] += __uint_as_float(four.w);
      }
    }
    return true;
  }

  template <typename Finish>
  __device__ static void Consume(const Memory& memory, const WgmmaArguments& arguments,
                                 const Finish& finish) {
    const uint32_t boxes = memory.Boxes(threadIdx.x / 32 - 4);
    const Steps steps = StepsOf(arguments);
    Slot slot;
    for (uint32_t work = FirstWork(); work < arguments.of.work; work += NextWork()) {
      Sums sums;
      Accumulate(memory, steps.end - steps.begin, slot, sums);
      if constexpr (kSplits > 1) {
        if (!Gather(memory, sums)) return;
      }
      Store<Finish>(boxes, sums, {arguments, PlaceOfWork(arguments, work), finish});
    }
    if (threadIdx.x % 32 == 0) WaitForStoresToRead<0>();
  }

  __device__ static void Init(const Memory& memory, const WgmmaArguments& arguments) {
    if (threadIdx.x == 0) {
      PrefetchMap(&arguments.a);
      PrefetchMap(&arguments.b);
      for (uint32_t slot = 0; slot < kTile.stages; ++slot) {
        InitBarrier(memory.Full(slot), 1);
        InitBarrier(memory.Empty(slot), kConsumerWarps * kAcross);
      }
      FenceBarrierInit();
    }
    Sync();
  }

  // Of the cluster, no block of which may be gone while another can still reach its memory.
  __device__ static void Sync() {
    if constexpr (kBlocks == 1) {
      __syncthreads();
    } else {
      ClusterSync();
    }
  }

  // REQUIRES: where a cluster shares a tile, there are as many clusters as tiles and no fewer steps
  // of k than blocks in a cluster.
  template <typename Finish>
  __device__ static void Run(uint32_t ring, const WgmmaArguments& arguments, const Finish& finish) {
    const Memory memory{ring};
    Init(memory, arguments);
    if (threadIdx.x < 128) {
      if constexpr (kConsumers > 1) GiveRegisters<kProducerRegisters>();
      if (threadIdx.x == 0) Produce(memory, arguments);
      __syncwarp();
      if constexpr (kSplits > 1) {
        ClusterSync();
        ClusterSync();
      }
    } else {
      if constexpr (kConsumers > 1) TakeRegisters<kConsumerRegisters>();
      Consume(memory, arguments, finish);
    }
    if constexpr (kAcross > 1) ClusterSync();
  }
};

template <typename T, typename Variant>
__global__ void __launch_bounds__(Variant::kTile.threads(), 1)
    WgmmaTiled(const __grid_constant__ WgmmaArguments arguments) {
  // The instructions are architecture 90a's alone: for others the kernel is empty, and never run.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char ring[];
  WgmmaKernel<T, Variant>::Run(SharedAddress(ring), arguments, NoFinish{});
#endif
}

}  // namespace warpcall::matmul
