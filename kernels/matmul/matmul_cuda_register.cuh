// register_tiled: tiles of c by multiply-adds, without tensor cores. Blocks are tiled by warps and
// warps by threads, each of which keeps its outputs in registers (as in CUTLASS, "Efficient GEMM in
// CUDA"). Shared memory holds a ring of stages as float32, k slowest for both operands, so that a
// thread reads its rows and columns of a term by 16 bytes; the terms to come are read while one is
// multiplied. Per tile (m + n) x k elements are read, through L2, and m x n written once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul_cuda_arguments.h"
#include "kernels/matmul/matmul_cuda_left.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_share.cuh"
#include "kernels/matmul/matmul_cuda_variants.h"
#include "kernels/matmul/matmul_cuda_walk.cuh"

namespace warpcall::matmul {

// A warp's lanes lie 8 x 4 on its part of the tile; a thread's outputs are squares of 4 x 4, which
// recur every 32 rows and 16 columns, so that the loads of a warp are of neighbouring vectors.
inline constexpr int kLanesM = 8;
inline constexpr int kLanesN = 4;
inline constexpr int kSquare = 4;

// One stage of one operand: term p of outer index i at p x kPitch + i. With a pitch of 4 more than
// a multiple of 32 the transposing loaders, whose warps write 8 terms of 4 outer indices, touch
// every bank once; and rows stay aligned for vectors.
template <Adjacent kAdjacent, int kOuter, int kDepth>
struct FloatTile {
  static_assert(kOuter % 32 == 0);
  static constexpr int kOuterSize = kOuter;
  static constexpr int kDepthSize = kDepth;
  static constexpr int kPitch = kOuter + 4;
  static constexpr int kFloats = kDepth * kPitch;

  // The index of what the loaders call row and column.
  __device__ static int Index(int row, int column) {
    return kAdjacent == Adjacent::kDepth ? column * kPitch + row : row * kPitch + column;
  }
};

// Shared memory of a block, for the stages of both operands.
inline size_t RegisterRingBytes(const Tile& tile) {
  return static_cast<size_t>(tile.m + 4 + tile.n + 4) * tile.depth * sizeof(float) * tile.stages;
}

// Terms that a warp's lanes take side by side where k is adjacent: 32 bytes of float32, a sector.
inline constexpr int kTermsAcross = 8;

// Loads float32 by asynchronous copies: of 16 bytes where the outer index is adjacent and rows are
// whole vectors (kVectors), otherwise of 4, which also transpose.
template <typename T, Adjacent kAdjacent, typename Layout, int kThreads, bool kVectors>
class FloatLoader {
 public:
  __device__ explicit FloatLoader(const Source<T>& source) : walker_(source) {}

  __device__ void Issue(float* stage, int depth) {
#pragma unroll
    for (int pass = 0; pass < Pieces::kPasses; ++pass)
      CopyAsync<kPiece * sizeof(float)>(
          SharedAddress(stage + Layout::Index(walker_.Row(pass), walker_.Column(pass))),
          walker_.From(pass), walker_.Valid(pass, depth));
  }

  __device__ void Land(float* /*stage*/) { walker_.Advance(); }

 private:
  static constexpr int kPiece = kAdjacent == Adjacent::kOuter && kVectors ? 4 : 1;
  using Pieces = Walk<kAdjacent, Layout::kOuterSize, Layout::kDepthSize, kThreads, kPiece,
                      kAdjacent == Adjacent::kDepth ? kTermsAcross : Layout::kOuterSize / kPiece>;
  Walker<T, Pieces> walker_;
};

// Loads 16-bit types, element by element through registers, and widens them on the way.
template <typename T, Adjacent kAdjacent, typename Layout, int kThreads>
class WideningLoader {
 public:
  __device__ explicit WideningLoader(const Source<T>& source) : walker_(source) {}

  __device__ void Issue(float* /*stage*/, int depth) {
#pragma unroll
    for (int pass = 0; pass < Pieces::kPasses; ++pass)
      held_[pass] = walker_.Valid(pass, depth) ? *walker_.From(pass) : T{};
  }

  __device__ void Land(float* stage) {
#pragma unroll
    for (int pass = 0; pass < Pieces::kPasses; ++pass)
      stage[Layout::Index(walker_.Row(pass), walker_.Column(pass))] = cuda::Widen(held_[pass]);
    walker_.Advance();
  }

 private:
  using Pieces = Walk<kAdjacent, Layout::kOuterSize, Layout::kDepthSize, kThreads, 1,
                      kAdjacent == Adjacent::kDepth ? kTermsAcross : Layout::kOuterSize>;
  Walker<T, Pieces> walker_;
  T held_[Pieces::kPasses];
};

// A kernel's compile-time parameters. `kVectors` matters to float32 only.
template <typename T, int kIndex, Adjacent kAdjacentA, Adjacent kAdjacentB, bool kVectors>
struct RegisterVariant {
  static constexpr bool kWide = sizeof(T) == sizeof(float);
  static constexpr Tile kTile = kWide ? kRegisterTiles[kIndex] : kRegisterNarrowTiles[kIndex];
  using LayoutA = FloatTile<kAdjacentA, kTile.m, kTile.depth>;
  using LayoutB = FloatTile<kAdjacentB, kTile.n, kTile.depth>;
  static constexpr Adjacent kA = kAdjacentA;
  static constexpr Adjacent kB = kAdjacentB;
  template <Adjacent kAdjacent, typename Layout>
  using Loader =
      std::conditional_t<kWide, FloatLoader<T, kAdjacent, Layout, kTile.threads(), kVectors>,
                         WideningLoader<T, kAdjacent, Layout, kTile.threads()>>;
};

// The variants of register_tiled for a type, and what kernel kKernel of them is compiled as.
template <typename T>
inline constexpr const TiledVariants& kRegisterVariantsOf = sizeof(T) == sizeof(float)
                                                                ? kRegisterVariants
                                                                : kRegisterNarrowVariants;

template <typename T, int kKernel>
struct RegisterVariantOfKernel {
  static constexpr TiledVariant kAt = kRegisterVariantsOf<T>.At(2 * kKernel);
  using Type = RegisterVariant<T, kAt.tile, kAt.a, kAt.b, kAt.in_vectors>;
};

template <typename T, typename Variant>
struct RegisterKernel {
  static constexpr Tile kTile = Variant::kTile;
  static constexpr bool kWide = Variant::kWide;
  static constexpr int kThreadM = kTile.warp_m() / kLanesM;
  static constexpr int kThreadN = kTile.warp_n() / kLanesN;
  using LayoutA = typename Variant::LayoutA;
  using LayoutB = typename Variant::LayoutB;
  using LoaderA = typename Variant::template Loader<Variant::kA, LayoutA>;
  using LoaderB = typename Variant::template Loader<Variant::kB, LayoutB>;
  static constexpr int kStageFloats = LayoutA::kFloats + LayoutB::kFloats;

  static_assert(kThreadM % kSquare == 0 && kThreadN % kSquare == 0);
  static_assert(kTile.warp_m() % kLanesM == 0 && kTile.warp_n() % kLanesN == 0);
  static_assert(kTile.depth % 2 == 0, "fragments alternate between two buffers across stages");
  static_assert(kTile.stages >= 2);
  static_assert(LayoutA::kFloats % kSquare == 0, "b's rows are aligned for vectors too");

  struct Fragments {
    float a[kThreadM];
    float b[kThreadN];
  };
  using Sums = float[kThreadM][kThreadN];

  // Row and column of the tile of this thread's first output.
  struct Origin {
    int m;
    int n;
  };
  __device__ static Origin OriginOfThread() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return {.m = warp % kTile.warps_m * kTile.warp_m() + lane / kLanesN * kSquare,
            .n = warp / kTile.warps_m * kTile.warp_n() + lane % kLanesN * kSquare};
  }

  struct Loop {
    float* ring;
    int read;  // stages in the ring
    int write;
    int64_t left;  // terms of k that begin with the stage to be written
    Origin origin;
    LoaderA a;
    LoaderB b;
    Fragments fragments[2];
  };

  __device__ static int Next(int stage) { return stage + 1 == kTile.stages ? 0 : stage + 1; }

  __device__ static void Issue(Loop& loop) {
    float* const stage = loop.ring + loop.write * kStageFloats;
    const int depth = static_cast<int>(loop.left < kTile.depth ? loop.left : kTile.depth);
    loop.a.Issue(stage, depth);
    loop.b.Issue(stage + LayoutA::kFloats, depth);
  }

  __device__ static void Land(Loop& loop) {
    float* const stage = loop.ring + loop.write * kStageFloats;
    loop.a.Land(stage);
    loop.b.Land(stage + LayoutA::kFloats);
    CommitCopies();
    loop.write = Next(loop.write);
    loop.left -= kTile.depth;
  }

  template <int kCount>
  __device__ static void ReadVectors(const float* from, int every, float (&values)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += kSquare) {
      const float4 four = *reinterpret_cast<const float4*>(from + i / kSquare * every);
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }

  __device__ static void Read(Loop& loop, int term, Fragments* fragments) {
    const float* const stage = loop.ring + loop.read * kStageFloats;
    ReadVectors(stage + term * LayoutA::kPitch + loop.origin.m, kLanesM * kSquare, fragments->a);
    ReadVectors(stage + LayoutA::kFloats + term * LayoutB::kPitch + loop.origin.n,
                kLanesN * kSquare, fragments->b);
  }

  // Term `kTerm` of a stage and those after it. Each reads the fragments of the term to come, for
  // the last the next stage's first; then it multiplies.
  template <int kTerm>
  __device__ static void Terms(Loop& loop, Sums& sums) {
    if constexpr (kTerm + 1 == kTile.depth) {
      Land(loop);
      WaitForCopies<kTile.stages - 2>();
      // After this barrier every warp has read the last of this stage, which will be written next,
      // and sees the whole of the next one.
      __syncthreads();
      loop.read = Next(loop.read);
    }
    Read(loop, (kTerm + 1) % kTile.depth, &loop.fragments[(kTerm + 1) % 2]);
    if constexpr (kTerm == 0) Issue(loop);
    const Fragments& fragments = loop.fragments[kTerm % 2];
    // Along columns, down one and up the next, so that neighbouring multiply-adds share a factor,
    // which the register cache then has: two registers of three are read anew. (CUTLASS, SIMT warp
    // tiles, walks likewise.) By rows, ptxas left three to read in 30 % of them, and so in 14 %.
#pragma unroll
    for (int j = 0; j < kThreadN; ++j)
#pragma unroll
      for (int step = 0; step < kThreadM; ++step) {
        const int i = j % 2 == 0 ? step : kThreadM - 1 - step;
        sums[i][j] = fmaf(fragments.a[i], fragments.b[j], sums[i][j]);
      }
    if constexpr (kTerm + 1 < kTile.depth) Terms<kTerm + 1>(loop, sums);
  }

  __device__ static void Accumulate(float* ring, const Sources<T>& sources, Sums& sums) {
    Loop loop{.ring = ring,
              .read = 0,
              .write = 0,
              .left = sources.depth,
              .origin = OriginOfThread(),
              .a = LoaderA(sources.a),
              .b = LoaderB(sources.b),
              .fragments = {}};
#pragma unroll
    for (int stage = 0; stage < kTile.stages - 1; ++stage) {
      Issue(loop);
      Land(loop);
    }
    WaitForCopies<kTile.stages - 2>();
    __syncthreads();
    Read(loop, 0, &loop.fragments[0]);
    // The stage to be written is kAhead terms ahead of the one to be multiplied.
    constexpr int64_t kAhead = int64_t{kTile.stages - 1} * kTile.depth;
    while (loop.left > -kAhead) Terms<0>(loop, sums);
    WaitForCopies<0>();
  }

  // The place of a thread's first output, and the number of c's rows and columns from there on.
  template <typename Element>
  struct Corner {
    Element* at;
    int64_t stride;
    int64_t rows;
    int64_t columns;
  };

  template <typename Element>
  __device__ static void Store(const Sums& sums, const Corner<Element>& corner) {
    const bool in_vectors = corner.stride % kSquare == 0;
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
      const int row = i / kSquare * kLanesM * kSquare + i % kSquare;
      if (row >= corner.rows) continue;
      Element* const at = corner.at + row * corner.stride;
#pragma unroll
      for (int j = 0; j < kThreadN; j += kSquare) {
        const int column = j * kLanesN;
        const float four[kSquare] = {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
        if (in_vectors) {
          if (column < corner.columns)
            cuda::Vector<Element, kSquare>::Pack(four).Store(at + column);
          continue;
        }
#pragma unroll
        for (int e = 0; e < kSquare; ++e)
          if (column + e < corner.columns) at[column + e] = cuda::Narrow<Element>(four[e]);
      }
    }
  }

  // Store with bias and the like, by way of the ring, which nobody reads any more: a loop can index
  // what lies there, and so has its code once for four columns, where sums in registers would have
  // it unrolled. A thread reads what it wrote itself, 16 bytes at a time beside its neighbours.
  template <typename Finish>
  __device__ static void StoreFinished(float* ring, const Sums& sums, const Corner<T>& corner,
                                       const Finish& finish) {
    static_assert(kTile.threads() * kThreadM * kSquare <= kStageFloats * kTile.stages);
    using BiasOfSquare = typename Finish::template BiasOfColumns<kSquare>;
    BiasOfSquare biases[kThreadN / kSquare];
#pragma unroll
    for (int j = 0; j < kThreadN; j += kSquare) {
      const int column = j * kLanesN;
      biases[j / kSquare] = finish.From(column).template BiasOf<kSquare>(corner.columns - column);
    }
    const bool in_vectors = corner.stride % kSquare == 0;
    float4* const own = reinterpret_cast<float4*>(ring) + threadIdx.x;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kThreadN; j += kSquare) {
      const int column = j * kLanesN;
      if (column >= corner.columns) return;
#pragma unroll
      for (int i = 0; i < kThreadM; ++i)
        own[i * kTile.threads()] =
            make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
#pragma unroll 2
      for (int i = 0; i < kThreadM; ++i) {
        const int row = i / kSquare * kLanesM * kSquare + i % kSquare;
        if (row >= corner.rows) break;
        const float4 sum = own[i * kTile.threads()];
        float four[kSquare] = {sum.x, sum.y, sum.z, sum.w};
        finish.Apply(biases[j / kSquare], four);
        T* const at = corner.at + row * corner.stride + column;
        if (in_vectors) {
          cuda::Vector<T, kSquare>::Pack(four).Store(at);
          continue;
        }
#pragma unroll
        for (int e = 0; e < kSquare; ++e)
          if (column + e < corner.columns) at[e] = cuda::Narrow<T>(four[e]);
      }
    }
  }

  using Left = LeftSums<kTile.threads(), kThreadM * kThreadN>;

  // The share that a block multiplies before it stores. Of a shared tile, which begins at `tile` in
  // the row of Runs, the share has the steps of `run` from `begin` on.
  struct Job {
    BlockShare share;
    bool is_shared = false;
    uint32_t run = 0;
    uint32_t tile = 0;
    uint32_t begin = 0;
  };

  template <typename Finish>
  __device__ static void RunJob(float* ring, const Arguments& arguments, const Job& job,
                                const Finish& finish) {
    const BlockShare& share = job.share;
    const Source<T> a{.data = static_cast<const T*>(arguments.a) + share.a,
                      .stride = arguments.a_stride,
                      .outer = arguments.m};
    const Source<T> b{.data = static_cast<const T*>(arguments.b) + share.b,
                      .stride = arguments.b_stride,
                      .outer = arguments.n};
    Sums sums = {};
    Accumulate(ring,
               {.a = SourceFrom<Variant::kA>(a, share.m, share.k_begin),
                .b = SourceFrom<Variant::kB>(b, share.n, share.k_begin),
                .depth = share.k_end - share.k_begin},
               sums);
    if constexpr (kTile.may_share()) {
      const Left left(arguments.left, arguments.runs, {/*blocks=*/1, /*rank=*/0, threadIdx.x});
      if (job.is_shared && !left.LeaveOrAdd(job.run, job.tile, job.begin, &sums[0][0])) return;
    }
    const Origin origin = OriginOfThread();
    const int64_t m = share.m + origin.m;
    const int64_t n = share.n + origin.n;
    const int64_t offset = share.c + m * arguments.n + n;
    if (arguments.splits > 1)
      return Store<float>(
          sums, {arguments.partial + offset, arguments.n, arguments.m - m, arguments.n - n});
    const Corner<T> corner = {static_cast<T*>(arguments.c) + offset, arguments.n, arguments.m - m,
                              arguments.n - n};
    if constexpr (std::is_same_v<Finish, NoFinish>) {
      Store<T>(sums, corner);
    } else {
      StoreFinished(ring, sums, corner, finish.From(n));
    }
  }

  // Returns the part of run `run` that begins at step `begin` of the row and ends with the tile or
  // the run.
  __device__ static Job JobOfRun(const Arguments& arguments, uint32_t run, uint32_t begin) {
    const Runs& runs = arguments.runs;
    const uint32_t tile = begin / runs.tile_steps;
    Job job = {.share = ShareOfBlock<kTile.m, kTile.n>(arguments, arguments.whole + tile),
               .is_shared = true,
               .run = run,
               .tile = tile * runs.tile_steps,
               .begin = begin};
    const int64_t k_end = int64_t{runs.Begin(run + 1) - job.tile} * kTile.depth;
    job.share.k_begin = int64_t{begin - job.tile} * kTile.depth;
    job.share.k_end = k_end < arguments.k ? k_end : arguments.k;
    return job;
  }

  // The run that a block draws. It lies in the ring, which no warp has begun to fill.
  __device__ static uint32_t DrawRun(float* ring, const Arguments& arguments) {
    auto* const drawn = reinterpret_cast<uint32_t*>(ring);
    if (threadIdx.x == 0) *drawn = Left::DrawRun(arguments.left, arguments.runs);
    __syncthreads();
    const uint32_t run = *drawn;
    __syncthreads();
    return run;
  }

  // Runs what a block has of its run: steps of two tiles at most.
  template <typename Finish>
  __device__ static void RunOwnRun(float* ring, const Arguments& arguments, const Finish& finish) {
    const uint32_t run = DrawRun(ring, arguments);
    const Runs& runs = arguments.runs;
#pragma unroll 1
    for (uint32_t begin = runs.Begin(run); begin < runs.Begin(run + 1);) {
      RunJob(ring, arguments, JobOfRun(arguments, run, begin), finish);
      begin = (begin / runs.tile_steps + 1) * runs.tile_steps;
      __syncthreads();  // then nobody reads the ring any more
    }
  }

  // A block has a tile or a split of it, or a run. Each has its own copy of the code: in one for
  // both ptxas keeps fewer factors in the register cache.
  template <typename Finish>
  __device__ static void Run(float* ring, const Arguments& arguments, const Finish& finish) {
    if constexpr (kTile.may_share()) {
      if (blockIdx.x >= arguments.whole) return RunOwnRun(ring, arguments, finish);
    }
    RunJob(ring, arguments, {.share = ShareOfBlock<kTile.m, kTile.n>(arguments, blockIdx.x)},
           finish);
  }
};

}  // namespace warpcall::matmul
