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

#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/early_launch.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/matmul/matmul_cuda_left.cuh"
#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_arguments.h"
#include "kernels/matmul/matmul_cuda_wgmma_multiply.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_ptx.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_shape.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_store.cuh"
#include "kernels/matmul/matmul_cuda_wgmma_tiles.h"

namespace warpcall::matmul {

template <typename T, typename Variant>
struct WgmmaKernel {
  using Shape = WgmmaShape<T, Variant>;
  using Outputs = WgmmaStore<T, Variant>;
  using Memory = typename Shape::Memory;
  using Place = typename Shape::Place;
  using Sums = typename Shape::Sums;
  static constexpr WgmmaTile kTile = Variant::kTile;
  static constexpr uint32_t kDepth = Shape::kDepth;
  static constexpr uint32_t kChunk = Shape::kChunk;
  static constexpr uint32_t kSteps = Shape::kSteps;
  static constexpr int kAcross = Shape::kAcross;
  static constexpr int kSplits = Shape::kSplits;
  static constexpr int kConsumers = Shape::kConsumers;
  static constexpr bool kMayShare = kTile.may_share();
  using Left = LeftSums<kConsumers * 128, kTile.n / 2>;
  // A warp stores the last kBehind boxes of its outputs behind the next tile's first products: it
  // can fill two boxes at once, and would wait for their copies before it fills another. Outputs of
  // 16 bits leave registers for it.
  static constexpr int kBehind =
      Shape::kIsNarrow && !Outputs::kIsDirect && Outputs::kBoxes > 2 ? Outputs::kBoxes - 2 : 0;
  static constexpr int kAtOnce = Outputs::kBoxes - kBehind;
  // Registers per thread, which warpgroups exchange: a launch gives each of 384 threads 168.
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;

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
  // Steps to multiply, and the place in the ring of the first.
  struct Counted {
    uint32_t steps;
    Slot& slot;
  };

  // This block's steps of k: all of them, or its part of the cluster's.
  struct Steps {
    uint32_t begin;
    uint32_t end;
  };
  __device__ static Steps StepsOf(const WgmmaArguments& arguments) {
    if constexpr (kSplits == 1) return {0, arguments.of.steps};
    const uint32_t rank = Shape::Rank();
    WARPCALL_DEVICE_CHECK(rank < kSplits, rank);
    return {arguments.of.steps * rank / kSplits, arguments.of.steps * (rank + 1) / kSplits};
  }

  // The steps of a shared tile that the cluster multiplies. Positions are those in the row of Runs.
  struct Part {
    uint32_t work;
    uint32_t tile;   // where the tile begins
    uint32_t begin;  // the steps
    uint32_t end;
    bool is_last;  // of the run
  };

  __device__ static bool HasRun(const Memory& memory, const WgmmaArguments& arguments) {
    return arguments.of.runs.count > 0 && LoadShared32(memory.Run()) < arguments.of.runs.count;
  }

  // Runs body(run, part) for both parts of the cluster's run, or the one that there is.
  template <typename Body>
  __device__ static void ForPartsOfRun(const Memory& memory, const WgmmaArguments& arguments,
                                       const Body& body) {
    const Runs& runs = arguments.of.runs;
    if (!HasRun(memory, arguments)) return;
    const uint32_t run = LoadShared32(memory.Run());
    const uint32_t end = runs.Begin(run + 1);
#pragma unroll 1
    for (uint32_t at = runs.Begin(run); at < end;) {
      const uint32_t tile = at / runs.tile_steps;
      const uint32_t tile_end = (tile + 1) * runs.tile_steps;
      const Part part = {arguments.of.whole + tile, tile * runs.tile_steps, at,
                         end < tile_end ? end : tile_end, end <= tile_end};
      body(run, part);
      at = part.end;
    }
  }

  __device__ static void LoadA(const WgmmaArguments& arguments, const Place& place, int32_t k,
                               Landing landing) {
    if constexpr (Variant::kA == Adjacent::kDepth) {
      LoadBox(&arguments.a[place.row_class], {k, place.m, place.a}, landing);
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kTile.m; i += kChunk, landing.to += Shape::kChunkBytes)
        LoadBox(&arguments.a[0], {place.m + static_cast<int32_t>(i), k, place.a}, landing);
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

  // Loads the block's share of its cluster's b: a run of columns, or every kAcross-th chunk. `k`
  // counts columns of a's map, as for LoadA.
  __device__ static void LoadB(const WgmmaArguments& arguments, const Place& place, int32_t k,
                               const Landing& landing) {
    const uint32_t rank = kAcross > 1 ? Shape::Rank() : 0;
    if constexpr (Variant::kB == Adjacent::kDepth) {
      const uint32_t share = rank * Shape::kShareB;
      LoadBoxOfB(arguments, {k, place.n + static_cast<int32_t>(share), place.b},
                 {landing.to + share * Shape::kRowBytes, landing.barrier});
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kTile.n / kChunk; ++i) {
        if (i % kAcross != rank) continue;
        const int32_t row = Shape::kTakesClasses ? k - place.past : k;
        LoadBoxOfB(arguments, {place.n + static_cast<int32_t>(i * kChunk), row, place.b},
                   {landing.to + i * Shape::kChunkBytes, landing.barrier});
      }
    }
  }

  // Clusters go through the work in turns.
  __device__ static uint32_t FirstWork() { return blockIdx.x / Shape::kBlocks; }
  __device__ static uint32_t NextWork() { return gridDim.x / Shape::kBlocks; }

  // Stages whose b is copied before the kernel ahead ends; a follows when that has ended.
  __device__ static uint32_t StagesAhead(const WgmmaArguments& arguments) {
    if (!arguments.of.b_is_settled || FirstWork() >= arguments.of.whole) return 0;
    const Steps steps = StepsOf(arguments);
    const uint32_t count = steps.end - steps.begin;
    return count < kTile.stages ? count : kTile.stages;
  }

  __device__ static void ProduceAhead(const Memory& memory, const WgmmaArguments& arguments) {
    const uint32_t stages = StagesAhead(arguments);
    if (stages == 0) return;
    const Place place = Shape::PlaceOfWork(arguments, FirstWork());
    const uint32_t begin = StepsOf(arguments).begin;
    for (uint32_t stage = 0; stage < stages; ++stage) {
      const uint32_t full = memory.Full(stage);
      ArriveExpecting(full, arguments.of.stage_bytes);
      LoadB(arguments, place, static_cast<int32_t>((begin + stage) * kDepth),
            {memory.Stage(stage) + Shape::kBytesA, full});
    }
  }

  // A step's operands; the stage may have b.
  struct Copied {
    const Place& place;
    uint32_t step;
    bool has_b;
  };

  // Copies a step's operands as soon as every warp that reads the stage, in all blocks of the
  // cluster, is done with what was there.
  __device__ static void ProduceStep(const Memory& memory, const WgmmaArguments& arguments,
                                     const Copied& copied, Slot& slot) {
    const uint32_t full = memory.Full(slot.index);
    const uint32_t stage = memory.Stage(slot.index);
    const auto k = static_cast<int32_t>(copied.step * kDepth);
    if (!copied.has_b) {
      WaitFor(memory.Empty(slot.index), slot.parity ^ 1);
      ArriveExpecting(full, arguments.of.stage_bytes);
      LoadB(arguments, copied.place, k, {stage + Shape::kBytesA, full});
    }
    LoadA(arguments, copied.place, k, {stage, full});
    slot.Advance();
  }

  // The thread that copies.
  __device__ static void Produce(const Memory& memory, const WgmmaArguments& arguments) {
    Slot slot;
    uint32_t ahead = StagesAhead(arguments);
    const Steps steps = StepsOf(arguments);
    for (uint32_t work = FirstWork(); work < arguments.of.whole; work += NextWork()) {
      const Place place = Shape::PlaceOfWork(arguments, work);
      for (uint32_t step = steps.begin; step < steps.end; ++step) {
        const bool has_b = ahead > 0;
        ahead -= has_b;
        ProduceStep(memory, arguments, {place, step, has_b}, slot);
      }
    }
    if constexpr (kMayShare) {
      ForPartsOfRun(memory, arguments, [&](uint32_t run, const Part& part) {
        const Runs& runs = arguments.of.runs;
        const Place place = Shape::PlaceOfWork(arguments, part.work);
        const uint32_t first = runs.RunOf(part.tile);
        for (uint32_t at = part.begin; at < part.end; ++at) {
          const uint32_t step = runs.StepOfK(part.tile, first, run, at - runs.Begin(run));
          ProduceStep(memory, arguments, {place, step, /*has_b=*/false}, slot);
        }
      });
    }
  }

  // Releases a stage for this warp; other blocks of the cluster may have copied parts of its b.
  __device__ static void Release(const Memory& memory, uint32_t slot) {
    WARPCALL_DEVICE_CHECK(slot < kTile.stages, slot);
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (kAcross == 1) {
      if (lane == 0) Arrive(memory.Empty(slot));
    } else {
      if (lane < kAcross) ArriveAt(memory.Empty(slot), lane);
    }
  }

  // A stage's products, as one group.
  __device__ static void MultiplyStage(uint32_t stage, uint32_t consumer, bool add, Sums& sums) {
    WARPCALL_DEVICE_CHECK(consumer < kConsumers, consumer);
    const uint64_t a = DescriptorOf<Variant::kA>(stage + consumer * Shape::kConsumerBytesA);
    const uint64_t b = DescriptorOf<Variant::kB>(stage + Shape::kBytesA);
    FenceSums();
#pragma unroll
    for (uint32_t i = 0; i < kSteps; ++i)
      Wgmma<T, Variant::kA, Variant::kB>::Multiply(sums, a + i * kDescriptorStep<Variant::kA>,
                                                   b + i * kDescriptorStep<Variant::kB>,
                                                   add || i > 0);
    CommitProducts();
  }

  // Multiplies all of a tile. A stage is given back when the next stage's products are under way,
  // so that the tensor cores do not wait in between. Runs behind(i) for each i < kCount when the
  // products of step i are under way, or of all steps that there are.
  template <uint32_t kCount, typename Behind>
  __device__ static void Accumulate(const Memory& memory, const Counted& of, Sums& sums,
                                    const Behind& behind) {
    Slot& slot = of.slot;
    WARPCALL_DEVICE_CHECK(of.steps > 0 && slot.index < kTile.stages, of.steps, slot.index);
    const uint32_t consumer = threadIdx.x / 128 - 1;
    uint32_t before = slot.index;
    const auto multiply = [&](uint32_t step) {
      WaitFor(memory.Full(slot.index), slot.parity);
      MultiplyStage(memory.Stage(slot.index), consumer, step > 0, sums);
      if (step > 0) {
        WaitForProducts<1>();
        Release(memory, before);
      }
      before = slot.index;
      slot.Advance();
    };
#pragma unroll
    for (uint32_t i = 0; i < kCount; ++i) {
      if (i < of.steps) multiply(i);
      behind(i);
    }
    for (uint32_t step = kCount; step < of.steps; ++step) multiply(step);
    WaitForProducts<0>();
    Release(memory, before);
  }

  // Clears the columns of a's map before its rows in the first stage of a tile, two threads a row.
  // They may hold infinities, which b's zeros do not cancel. A warpgroup clears the rows that it
  // multiplies.
  __device__ static void ClearPast(const Memory& memory, const Slot& slot, uint32_t past) {
    WARPCALL_DEVICE_CHECK(past < kWgmmaClasses, past);
    const uint32_t row = (threadIdx.x - 128) / 2;
    // The row's first 16 bytes, swizzled.
    const uint32_t begin = memory.Stage(slot.index) + row * Shape::kRowBytes + row % 8 * 16;
    WaitFor(memory.Full(slot.index), slot.parity);
#pragma unroll 1
    for (uint32_t column = threadIdx.x % 2; column < past; column += 2)
      StoreShared16(begin + column * 2, 0);
    FenceForCopies();
    SyncWarpgroup();
  }

  // A stage's rows of a, as registers have them: four for each 8 terms of k.
  using Fragments = uint32_t[kSteps * 4];

  __device__ static void LoadFragments(uint32_t stage, Fragments& fragments) {
    const uint32_t row = Shape::TurnedRow();
    const uint32_t term = threadIdx.x % 4;
    const uint32_t from = stage + (threadIdx.x / 128 - 1) * Shape::kConsumerBytesA +
                          row / 32 * Shape::kChunkBytes + row % 4 * 4;
#pragma unroll
    for (uint32_t i = 0; i < kSteps * 2; ++i) {
      const uint32_t k = i * 4 + term;
      LoadShared64(from + k * Shape::kRowBytes + (row % 32 / 4 ^ k % 8) * 16, &fragments[i * 2]);
    }
  }

  __device__ static void MultiplyFragments(uint32_t stage, const Fragments& fragments, bool add,
                                           Sums& sums) {
    const uint64_t b = DescriptorOf<Variant::kB>(stage + Shape::kBytesA);
    FenceSums();
#pragma unroll
    for (uint32_t i = 0; i < kSteps; ++i)
      MultiplyFromRegisters(sums, &fragments[i * 4], b + i * kDescriptorStep<Variant::kB>,
                            add || i > 0);
    CommitProducts();
  }

  // Accumulate, with a out of registers: those of a stage are loaded while the one before is
  // multiplied, when the one before that is done with them.
  __device__ static void AccumulateTurned(const Memory& memory, uint32_t steps, Slot& slot,
                                          Sums& sums) {
    WARPCALL_DEVICE_CHECK(steps > 0 && slot.index < kTile.stages, steps, slot.index);
    Fragments fragments[2];
    WaitFor(memory.Full(slot.index), slot.parity);
    LoadFragments(memory.Stage(slot.index), fragments[0]);
    uint32_t before = slot.index;
    for (uint32_t step = 0; step < steps;) {
#pragma unroll
      for (uint32_t parity = 0; parity < 2; ++parity) {
        if (step == steps) break;
        const uint32_t now = slot.index;
        MultiplyFragments(memory.Stage(now), fragments[parity], step > 0, sums);
        slot.Advance();
        if (step > 0) {
          WaitForProducts<1>();
          Release(memory, before);
        }
        before = now;
        if (++step < steps) {
          WaitFor(memory.Full(slot.index), slot.parity);
          LoadFragments(memory.Stage(slot.index), fragments[1 - parity]);
        }
      }
    }
    WaitForProducts<0>();
    Release(memory, before);
  }

  // A tile's boxes, of which the last kBehind are stored behind the next tile's first products.
  struct Waiting {
    typename Outputs::Word words[Outputs::kBoxes][Outputs::kWords];
    Place place;
    bool any = false;
  };

  // A warp carries this from tile to tile.
  struct Progress {
    Slot slot;
    typename Outputs::Bias bias;
    Waiting waiting;
  };

  template <typename Finish>
  struct Consumed {
    const WgmmaArguments& arguments;
    const Finish& finish;
    uint32_t work;
    uint32_t steps;
    bool is_last;  // of this cluster
    bool clears;   // a is read in classes of rows, and the first step is the tile's first
  };

  // A warp calls this when a tile's step i has begun. It stores what the tile before left, a box in
  // each of the first steps, and then asks for this tile's bias.
  template <typename Finish>
  __device__ static void DoBehind(const Memory& memory, const Consumed<Finish>& tile, uint32_t i,
                                  Progress& progress) {
    if (i < kBehind) {
      const Waiting& waiting = progress.waiting;
      const int box = kAtOnce + static_cast<int>(i);
      if (waiting.any)
        Outputs::StoreBoxOf(box, memory, waiting.words[box], {tile.arguments, waiting.place});
    } else if constexpr (Outputs::template kHasBias<Finish>) {
      Outputs::LoadBias(tile.finish, Shape::PlaceOfWork(tile.arguments, tile.work).n,
                        tile.arguments.of.n, &progress.bias);
    }
  }

  // Stores a tile's outputs, but for what waits for the next tile.
  template <typename Finish>
  __device__ static void Store(const Memory& memory, const Consumed<Finish>& tile, Sums& sums,
                               Progress& progress) {
    Waiting& waiting = progress.waiting;
    waiting.place = Shape::PlaceOfWork(tile.arguments, tile.work);
    waiting.any = !tile.is_last;
#pragma unroll
    for (int i = 0; i < Outputs::kBoxes; ++i) {
      if constexpr (Outputs::template kHasBias<Finish>)
        Outputs::FinishBox(i, tile.finish, progress.bias, sums);
      Outputs::Round(&sums[i * Shape::kBoxColumns / 2], waiting.words[i]);
      if (i < kAtOnce || tile.is_last)
        Outputs::StoreBoxOf(i, memory, waiting.words[i], {tile.arguments, waiting.place});
    }
  }

  // Multiplies a tile's steps, and stores its outputs unless gather(sums) leaves them to others.
  template <typename Finish, typename Gather>
  __device__ static void ConsumeTile(const Memory& memory, const Consumed<Finish>& tile,
                                     Progress& progress, const Gather& gather) {
    Sums sums;
    if constexpr (Shape::kTakesClasses) {
      if (tile.clears) {
        const int32_t past = Shape::PlaceOfWork(tile.arguments, tile.work).past;
        if (past > 0) ClearPast(memory, progress.slot, static_cast<uint32_t>(past));
      }
    }
    if constexpr (Shape::kIsTurned) {
      AccumulateTurned(memory, tile.steps, progress.slot, sums);
    } else {
      constexpr uint32_t kCount = kBehind + Outputs::template kHasBias<Finish>;
      Accumulate<kCount>(memory, {tile.steps, progress.slot}, sums,
                         [&](uint32_t i) { DoBehind(memory, tile, i, progress); });
    }
    progress.waiting.any = false;
    if (!gather(sums)) return;
    if constexpr (Outputs::kIsDirect) {
      const typename Outputs::template Target<Finish> target = {
          {tile.arguments, Shape::PlaceOfWork(tile.arguments, tile.work)},
          tile.finish,
          progress.bias};
      if constexpr (kSplits > 1) ClusterWait();
      Outputs::StoreDirectly(memory, sums, target);
    } else {
      Store(memory, tile, sums, progress);
    }
  }

  // Whole tiles and shared ones have a copy of the code each: one for both took 11 instructions
  // more a step, since what is the same for all threads did not stay in uniform registers.
  template <typename Finish>
  __device__ static void Consume(const Memory& memory, const WgmmaArguments& arguments,
                                 const Finish& finish) {
    const Steps steps = StepsOf(arguments);
    const bool in_classes = Shape::ReadsInClasses(arguments);
    Progress progress;
    if constexpr (kSplits > 1) {
      if (threadIdx.x == 128)
        Outputs::ExpectSums(memory, arguments, Shape::PlaceOfWork(arguments, FirstWork()));
    }
    const bool has_run = kMayShare && HasRun(memory, arguments);
    for (uint32_t work = FirstWork(); work < arguments.of.whole; work += NextWork()) {
      const bool is_last = work + NextWork() >= arguments.of.whole && !has_run;
      ConsumeTile<Finish>(memory,
                          {arguments, finish, work, steps.end - steps.begin, is_last, in_classes},
                          progress, [](Sums&) { return true; });
    }
    if constexpr (kMayShare) {
      ForPartsOfRun(memory, arguments, [&](uint32_t run, const Part& part) {
        // A run that has the tile's first step of k begins its part with it.
        const Runs& runs = arguments.of.runs;
        const bool clears = in_classes && runs.StepOfK(part.tile, runs.RunOf(part.tile), run,
                                                       part.begin - runs.Begin(run)) == 0;
        ConsumeTile<Finish>(
            memory, {arguments, finish, part.work, part.end - part.begin, part.is_last, clears},
            progress, [&](Sums& sums) {
              const Left left(arguments.left, arguments.of.runs,
                              {Shape::kBlocks, Shape::Rank(), threadIdx.x - 128});
              return left.LeaveOrAdd(run, part.tile, part.begin, sums);
            });
      });
    }
    if (!Outputs::kIsDirect && threadIdx.x % 32 == 0) WaitForStoresToRead<0>();
  }

  __device__ static void Init(const Memory& memory, const WgmmaArguments& arguments) {
    if (threadIdx.x == 0) {
      const int maps = Shape::ReadsInClasses(arguments) ? kWgmmaClasses : 1;
#pragma unroll 1
      for (int i = 0; i < maps; ++i) PrefetchMap(&arguments.a[i]);
      PrefetchMap(&arguments.b);
      for (uint32_t slot = 0; slot < kTile.stages; ++slot) {
        InitBarrier(memory.Full(slot), 1);
        InitBarrier(memory.Empty(slot), Shape::kConsumerWarps * kAcross);
      }
      if constexpr (kSplits > 1) InitBarrier(memory.Gathered(), 1);
      FenceBarrierInit();
    }
    if constexpr (kMayShare) {
      if (threadIdx.x == 32 && Shape::Rank() == 0 && arguments.of.runs.count > 0) {
        const uint32_t run = Left::DrawRun(arguments.left, arguments.of.runs);
        for (uint32_t rank = 0; rank < Shape::kBlocks; ++rank) StoreAt(memory.Run(), rank, run);
      }
    }
    // Blocks that send sums wait for this arrival; this block need not.
    if constexpr (kSplits > 1) ClusterArrive();
    Sync();
  }

  // Synchronises the block, or the cluster where blocks reach each other's barriers.
  __device__ static void Sync() {
    if constexpr (kAcross == 1) {
      __syncthreads();
    } else {
      ClusterSync();
    }
  }

  // REQUIRES: where a cluster shares a tile, there are as many clusters as tiles and no fewer steps
  // of k than blocks in a cluster.
  template <typename Finish>
  __device__ static void Run(uint32_t ring, const WgmmaArguments& arguments, const Finish& finish) {
    WARPCALL_DEVICE_CHECK(ring % 1024 == 0, ring);
    WARPCALL_DEVICE_CHECK(gridDim.x % Shape::kBlocks == 0, gridDim.x);
    WARPCALL_DEVICE_CHECK(kSplits == 1 || NextWork() == arguments.of.work, arguments.of.work);
    WARPCALL_DEVICE_CHECK(arguments.of.steps >= kSplits, arguments.of.steps);
    const Memory memory{ring};
    Init(memory, arguments);
    if (threadIdx.x == 0) ProduceAhead(memory, arguments);
    cuda::AwaitKernelAhead();
    cuda::LetNextKernelBegin();
    if (threadIdx.x < 128) {
      if constexpr (kConsumers > 1) GiveRegisters<kProducerRegisters>();
      if (threadIdx.x == 0) Produce(memory, arguments);
      __syncwarp();
      if constexpr (kSplits > 1) ClusterWait();
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
  // The instructions exist on architecture 90a only: elsewhere the kernel is empty and never run.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char ring[];
  WgmmaKernel<T, Variant>::Run(SharedAddress(ring), arguments, NoFinish{});
#endif
}

}  // namespace warpcall::matmul
