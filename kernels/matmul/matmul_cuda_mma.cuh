// mma_tiled: tiles of c on the tensor cores by mma.sync, as Ampere's multistage kernels do it. A
// ring of stages in shared memory is filled by asynchronous copies several steps of k ahead; warps
// read fragments by ldmatrix one step of 16 terms ahead of the multiplication; one barrier per
// stage. Per tile (m + n) x k elements are read, through L2, and m x n written once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul_cuda_arguments.h"
#include "kernels/matmul/matmul_cuda_layout.h"
#include "kernels/matmul/matmul_cuda_mma_loaders.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_share.cuh"
#include "kernels/matmul/matmul_cuda_walk.cuh"

namespace warpcall::matmul {

// Shared memory of a block, for the stages of both operands.
inline size_t MmaRingBytes(const Tile& tile) {
  return static_cast<size_t>(tile.m + tile.n) * tile.depth * sizeof(uint16_t) * tile.stages;
}

// A kernel's compile-time parameters, as a type: nvcc 13.0 takes no values of class type as
// parameters of kernels. `kByChunks`: the rows of a and b begin at multiples of 16 bytes.
template <int kIndex, Adjacent kAdjacentA, Adjacent kAdjacentB, bool kByChunks>
struct MmaVariant {
  static constexpr Tile kTile = kByChunks ? kMmaTiles[kIndex] : kMmaElementTiles[kIndex];
  static constexpr Adjacent kA = kAdjacentA;
  static constexpr Adjacent kB = kAdjacentB;
  template <typename T, Adjacent kAdjacent, typename Layout>
  using Loader = std::conditional_t<kByChunks, CopyLoader<T, kAdjacent, Layout, kTile.threads()>,
                                    ElementLoader<T, kAdjacent, Layout, kTile.threads()>>;
};

template <typename T, typename Variant>
struct MmaKernel {
  static constexpr Tile kTile = Variant::kTile;
  static constexpr int kWarpM = kTile.warp_m();
  static constexpr int kWarpN = kTile.warp_n();
  static constexpr int kFragmentsM = kWarpM / kFragmentOuter;
  static constexpr int kFragmentsN = kWarpN / kFragmentOuter;
  static constexpr int kSteps = kTile.depth / kFragmentDepth;
  using LayoutA = OperandTile<Variant::kA, kTile.m, kTile.depth>;
  using LayoutB = OperandTile<Variant::kB, kTile.n, kTile.depth>;
  static constexpr uint32_t kStageBytes = LayoutA::kBytes + LayoutB::kBytes;
  static constexpr uint32_t kRingBytes = kStageBytes * kTile.stages;
  static constexpr uint32_t kWarpOutputs = kWarpM * kWarpN;
  static constexpr uint32_t kWarpOutputBytes = kWarpOutputs * sizeof(T);

  static_assert(sizeof(T) == 2);
  static_assert(IsPowerOfTwo(kWarpM) && IsPowerOfTwo(kWarpN) && IsPowerOfTwo(kTile.depth));
  static_assert(kWarpM >= kFragmentOuter && kWarpN >= 2 * kFragmentOuter);
  static_assert(kSteps % 2 == 0, "fragments alternate between two buffers across stages");
  static_assert(kTile.stages >= 2);
  static_assert(kWarpOutputBytes * kTile.warps() <= kRingBytes, "outputs pass through the ring");

  using LoaderA = typename Variant::template Loader<T, Variant::kA, LayoutA>;
  using LoaderB = typename Variant::template Loader<T, Variant::kB, LayoutB>;

  struct Fragments {
    uint32_t a[kFragmentsM][4];
    uint32_t b[kFragmentsN][4];
  };
  // By rows of 16 and columns of 8; a lane holds columns 2 (lane % 4) and the next of rows lane / 4
  // and 8 below (PTX ISA, "Matrix Fragments for mma.m16n8k16").
  using Sums = float[kFragmentsM][kFragmentsN * 2][4];

  // A place in the ring, in bytes from its start.
  struct Slot {
    uint32_t offset;
    __device__ void Advance() {
      offset += kStageBytes;
      if (offset == kRingBytes) offset = 0;
    }
  };

  struct Readers {
    LaneAddress a;
    LaneAddress b;
  };

  __device__ static Readers ReadersOf(int warp, int lane) {
    const uint32_t m = warp % kTile.warps_m * kWarpM;
    const uint32_t n = warp / kTile.warps_m * kWarpN;
    return {.a = LaneAddressOf<Side::kA, Variant::kA, LayoutA::kRowChunks>(lane, m),
            .b = LaneAddressOf<Side::kB, Variant::kB, LayoutB::kRowChunks>(lane, n)};
  }

  __device__ static void Read(uint32_t stage, const Readers& readers, int step,
                              Fragments* fragments) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
      LoadMatrices<Variant::kA == Adjacent::kOuter>(
          fragments->a[i],
          stage + FragmentOffset<Variant::kA, LayoutA::kRowChunks>(readers.a, i, step));
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j)
      LoadMatrices<Variant::kB == Adjacent::kOuter>(
          fragments->b[j],
          stage + LayoutA::kBytes +
              FragmentOffset<Variant::kB, LayoutB::kRowChunks>(readers.b, j, step));
  }

  __device__ static void Multiply(const Fragments& fragments, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
      for (int j = 0; j < kFragmentsN * 2; ++j) {
        // Back and forth, so that consecutive mma share a fragment.
        const int column = i % 2 == 0 ? j : kFragmentsN * 2 - 1 - j;
        const uint32_t* b = fragments.b[column / 2] + column % 2 * 2;
        MultiplyFragments<T>(sums[i][column], fragments.a[i], b[0], b[1]);
      }
  }

  // The terms of k that are valid in a stage of which `left` and those before are.
  __device__ static int StageDepth(int64_t left) {
    return static_cast<int>(left < kTile.depth ? left : kTile.depth);
  }

  template <int kPart, int kParts>
  __device__ static void Issue(uint32_t stage, int depth, LoaderA* a, LoaderB* b) {
    a->template Issue<kPart, kParts>(stage, depth);
    b->template Issue<kPart, kParts>(stage + LayoutA::kBytes, depth);
  }

  __device__ static void Land(uint32_t stage, LoaderA* a, LoaderB* b) {
    a->Land(stage);
    b->Land(stage + LayoutA::kBytes);
    a->Advance();
    b->Advance();
    CommitCopies();
  }

  struct Loop {
    uint32_t ring;
    Slot read;
    Slot write;
    int64_t left;  // terms of k that begin with the stage to be written
    Readers readers;
    LoaderA a;
    LoaderB b;
    Fragments fragments[2];
  };

  // Step `kStep` of a stage and those after it. Each reads the fragments of the step to come, for
  // the last the next stage's first, and begins its part of the copies; then it multiplies.
  template <int kStep>
  __device__ static void Steps(Loop& loop, Sums& sums) {
    constexpr int kParts = kSteps - 1;
    if constexpr (kStep == kParts) {
      Land(loop.ring + loop.write.offset, &loop.a, &loop.b);
      WaitForCopies<kTile.stages - 2>();
      // After this barrier every warp has read the last of this stage, which will be written next,
      // and sees the whole of the next one.
      __syncthreads();
      loop.read.Advance();
      loop.write.Advance();
      loop.left -= kTile.depth;
    }
    Read(loop.ring + loop.read.offset, loop.readers, (kStep + 1) % kSteps,
         &loop.fragments[(kStep + 1) % 2]);
    if constexpr (kStep < kParts)
      Issue<kStep, kParts>(loop.ring + loop.write.offset, StageDepth(loop.left), &loop.a, &loop.b);
    Multiply(loop.fragments[kStep % 2], sums);
    if constexpr (kStep + 1 < kSteps) Steps<kStep + 1>(loop, sums);
  }

  __device__ static void Accumulate(uint32_t ring, const Sources<T>& sources, Sums& sums) {
    Loop loop{.ring = ring,
              .read = {0},
              .write = {0},
              .left = sources.depth,
              .readers = ReadersOf(threadIdx.x / 32, threadIdx.x % 32),
              .a = LoaderA(sources.a),
              .b = LoaderB(sources.b),
              .fragments = {}};
#pragma unroll
    for (int stage = 0; stage < kTile.stages - 1; ++stage) {
      Issue<0, 1>(ring + loop.write.offset, StageDepth(loop.left), &loop.a, &loop.b);
      Land(ring + loop.write.offset, &loop.a, &loop.b);
      loop.write.Advance();
      loop.left -= kTile.depth;
    }
    WaitForCopies<kTile.stages - 2>();
    __syncthreads();
    Read(ring, loop.readers, 0, &loop.fragments[0]);
    // The stage to be written is kAhead stages ahead of the one to be multiplied.
    constexpr int64_t kAhead = int64_t{kTile.stages - 1} * kTile.depth;
    while (loop.left > -kAhead) Steps<0>(loop, sums);
  }

  // The place of a warp's sums: its corner, and the number of its rows and columns that lie in c.
  template <typename Element>
  struct Corner {
    Element* at;
    int64_t stride;
    int64_t rows;
    int64_t columns;
  };

  // Rounds sums and stores them through the warp's own piece of the ring: whole chunks of rows.
  __device__ static void StoreRounded(uint32_t piece, const Sums& sums, const Corner<T>& corner) {
    constexpr int kRowChunks = kWarpN / kChunkElements;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
      for (int j = 0; j < kFragmentsN * 2; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          StoreShared32(piece +
                            ChunkOffset<kRowChunks>(i * kFragmentOuter + half * 8 + lane / 4, j) +
                            lane % 4 * 4,
                        cuda::NarrowPair<T>(sums[i][j][half * 2], sums[i][j][half * 2 + 1]));
    __syncwarp();
    if (corner.stride % kChunkElements == 0) {
#pragma unroll 4
      for (int id = lane; id < kWarpM * kRowChunks; id += 32) {
        const int row = id / kRowChunks;
        const int chunk = id % kRowChunks;
        if (row < corner.rows && chunk * kChunkElements < corner.columns)
          *reinterpret_cast<uint4*>(corner.at + row * corner.stride + chunk * kChunkElements) =
              LoadShared128(piece + ChunkOffset<kRowChunks>(row, chunk));
      }
      return;
    }
    for (int id = lane; id < kWarpM * kWarpN; id += 32) {
      const int row = id / kWarpN;
      const int column = id % kWarpN;
      if (row >= corner.rows || column >= corner.columns) continue;
      const uint32_t chunk = ChunkOffset<kRowChunks>(row, column / kChunkElements);
      corner.at[row * corner.stride + column] = {
          LoadShared16(piece + chunk + column % kChunkElements * sizeof(T))};
    }
  }

  // As StoreRounded, but in float32 as far as the warp's piece. There a lane has 8 neighbours of
  // columns that stay: it reads their bias once, and an activation's code is there once.
  template <typename Finish>
  __device__ static void StoreFinished(uint32_t piece, const Sums& sums, const Corner<T>& corner,
                                       const Finish& finish) {
    constexpr int kAcross = kWarpN / kChunkElements;  // lanes on a row
    static_assert(32 % kAcross == 0);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
      for (int j = 0; j < kFragmentsN * 2; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          StoreShared64(piece + FloatOffset<kWarpN>(i * kFragmentOuter + half * 8 + lane / 4,
                                                    j * 8 + lane % 4 * 2),
                        sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
    __syncwarp();
    const int column = lane % kAcross * kChunkElements;
    if (column >= corner.columns) return;
    const auto bias = finish.From(column).template BiasOf<kChunkElements>(corner.columns - column);
    const bool in_vectors = corner.stride % kChunkElements == 0;
#pragma unroll 2
    for (int row = lane / kAcross; row < kWarpM; row += 32 / kAcross) {
      if (row >= corner.rows) return;
      float values[kChunkElements];
#pragma unroll
      for (int e = 0; e < kChunkElements; e += 4) {
        const uint4 four = LoadShared128(piece + FloatOffset<kWarpN>(row, column + e));
        values[e] = __uint_as_float(four.x);
        values[e + 1] = __uint_as_float(four.y);
        values[e + 2] = __uint_as_float(four.z);
        values[e + 3] = __uint_as_float(four.w);
      }
      finish.Apply(bias, values);
      T* const at = corner.at + row * corner.stride + column;
      if (in_vectors) {
        cuda::Vector<T, kChunkElements>::Pack(values).Store(at);
        continue;
      }
#pragma unroll
      for (int e = 0; e < kChunkElements; ++e)
        if (column + e < corner.columns) at[e] = cuda::Narrow<T>(values[e]);
    }
  }

  // Stores sums as they are, for SumSplits.
  __device__ static void StorePartial(const Sums& sums, const Corner<float>& corner) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
      for (int j = 0; j < kFragmentsN * 2; ++j)
#pragma unroll
        for (int entry = 0; entry < 4; ++entry) {
          const int row = i * kFragmentOuter + entry / 2 * 8 + lane / 4;
          const int column = j * 8 + lane % 4 * 2 + entry % 2;
          if (row < corner.rows && column < corner.columns)
            corner.at[row * corner.stride + column] = sums[i][j][entry];
        }
  }

  // The place of the block's outputs, and the epilogue that they go through.
  template <typename Finish>
  struct Target {
    const Arguments& arguments;
    const BlockShare& share;
    const Finish& finish;
  };

  template <typename Finish>
  __device__ static void Store(uint32_t ring, const Sums& sums, const Target<Finish>& target) {
    const Arguments& arguments = target.arguments;
    const int warp = threadIdx.x / 32;
    const int64_t m = target.share.m + warp % kTile.warps_m * kWarpM;
    const int64_t n = target.share.n + warp / kTile.warps_m * kWarpN;
    const int64_t offset = target.share.c + m * arguments.n + n;
    const int64_t rows = arguments.m - m;
    const int64_t columns = arguments.n - n;
    if (arguments.splits > 1)
      return StorePartial(sums, {arguments.partial + offset, arguments.n, rows, columns});
    const Corner<T> corner = {static_cast<T*>(arguments.c) + offset, arguments.n, rows, columns};
    if constexpr (std::is_same_v<Finish, NoFinish>) {
      StoreRounded(ring + warp * kWarpOutputBytes, sums, corner);
    } else {
      StoreFinished(ring + warp * kWarpOutputs * sizeof(float), sums, corner,
                    target.finish.From(n));
    }
  }

  // REQUIRES: with a finish the ring has a float for every output of the tile.
  template <typename Finish>
  __device__ static void Run(uint32_t ring, const Arguments& arguments, const Finish& finish) {
    const BlockShare share = ShareOfBlock<kTile.m, kTile.n>(arguments, blockIdx.x);
    Sums sums = {};
    WARPCALL_DEVICE_CHECK(share.k_begin < share.k_end);
    const Source<T> a{.data = static_cast<const T*>(arguments.a) + share.a,
                      .stride = arguments.a_stride,
                      .outer = arguments.m};
    const Source<T> b{.data = static_cast<const T*>(arguments.b) + share.b,
                      .stride = arguments.b_stride,
                      .outer = arguments.n};
    const Sources<T> sources{.a = SourceFrom<Variant::kA>(a, share.m, share.k_begin),
                             .b = SourceFrom<Variant::kB>(b, share.n, share.k_begin),
                             .depth = share.k_end - share.k_begin};
    Accumulate(ring, sources, sums);
    // The ring is about to be written with outputs: no copy, of zeros as the last ones are, may be
    // under way, and no warp still reading.
    WaitForCopies<0>();
    __syncthreads();
    Store<Finish>(ring, sums, {arguments, share, finish});
  }
};

template <typename T, typename Variant>
__global__ void __launch_bounds__(Variant::kTile.threads(), Variant::kTile.resident)
    MmaTiled(const __grid_constant__ Arguments arguments) {
  extern __shared__ __align__(128) unsigned char ring[];
  MmaKernel<T, Variant>::Run(SharedAddress(ring), arguments, NoFinish{});
}

}  // namespace warpcall::matmul
