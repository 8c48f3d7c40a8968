// The kernel of ring_per_columns. Each of a block's warps has one task: one copies chunks of coming
// panels into the ring, some reduce the chunks that have arrived, one exchanges the columns'
// statistics with the cluster's other blocks, and some write. So memory works on while blocks wait
// for each other.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/device_check.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/softmax/softmax_cuda_column_ring.h"
#include "kernels/softmax/softmax_cuda_math.cuh"

namespace warpcall::softmax {

template <typename TIn, int kVariant>
struct RingTiling {
  using T = TIn;
  static constexpr int kRowBytes = RingRowBytes(kVariant, sizeof(T));
  static constexpr int kWidth = cuda::WidestVector(sizeof(T));
  static constexpr int kLanes = kRowBytes / kVectorBytes;
  static constexpr int kColumns = kRingColumns[kVariant];
  static constexpr int kChunkRows = RingChunkRows(kRowBytes);
  static constexpr int kChunkVectors = kRingChunkBytes / kVectorBytes;
  static constexpr int kReducers = 8;  // warps
  static constexpr int kWriters = 8;
  static constexpr int kThreads = 32 * (kReducers + kWriters + 2);
  static_assert(kLanes <= 32 && 32 % kLanes == 0 && kChunkRows <= 256 && kColumns % 16 == 0);
  static_assert(kChunkVectors % (kReducers * 32) == 0 && kChunkVectors % (kWriters * 32) == 0);
};

template <typename T>
struct RingTensor {
  T* y;
  ColumnShape shape;
  ColumnRingPlan plan;
};

// A block's work: its share of the rows of its cluster's panels.
template <typename Tiling>
struct RingWork {
  const RingTensor<typename Tiling::T>& tensor;
  int rank;  // the block's, in its cluster
  int first_row;
  int64_t first_panel;
  int64_t step;
  int64_t end;

  __device__ explicit RingWork(const RingTensor<typename Tiling::T>& tensor_in)
      : tensor(tensor_in) {
    const int blocks = tensor.plan.blocks;
    WARPCALL_DEVICE_CHECK(blocks > 0 && blocks <= kRingBlocksMax && gridDim.x % blocks == 0);
    WARPCALL_DEVICE_CHECK(tensor.plan.chunk_rows <= Tiling::kChunkRows);
    const int block = static_cast<int>(blockIdx.x);
    rank = block % blocks;
    first_row = rank * tensor.plan.chunks * tensor.plan.chunk_rows;
    first_panel = block / blocks;
    step = gridDim.x / blocks;
    end = tensor.plan.across * tensor.shape.outer;
  }

  // Rows of a chunk that exist.
  __device__ int RowsOf(int chunk) const {
    WARPCALL_DEVICE_CHECK(chunk >= 0 && chunk < tensor.plan.chunks);
    const int rows = tensor.plan.chunk_rows;
    return min(static_cast<int>(tensor.shape.n) - first_row - chunk * rows, rows);
  }
};

// Counts a cluster's panels. The statistics of a panel lie in one of two slots, whose barriers have
// a phase for each use.
struct Turn {
  uint32_t number = 0;

  __device__ uint32_t slot() const { return number & 1; }
  __device__ uint32_t parity() const { return number >> 1 & 1; }
  __device__ bool HasBefore() const { return number >= 2; }  // an earlier use of the slot
};

struct RingPlace {
  uint32_t stage = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++stage < kRingStages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <typename Tiling>
struct RingShared {
  cuda::SharedBarrier full[kRingStages];
  cuda::SharedBarrier empty[kRingStages];
  cuda::SharedBarrier parts[2];    // all reducers have stored theirs
  cuda::SharedBarrier totals[2];   // the columns' statistics are complete
  cuda::SharedBarrier taken[2];    // all writers have read them
  cuda::SharedBarrier arrived[2];  // all of the cluster's blocks have sent theirs
  MaxSum warps[2][Tiling::kReducers][Tiling::kColumns];
  alignas(8) float2 blocks[2][kRingBlocksMax][Tiling::kColumns];  // the cluster's, by rank
  float2 columns[2][Tiling::kColumns];  // the maximum, and the factor of the terms

  // Called by one thread. Every thread that writes or reads shared values arrives itself: racecheck
  // does not see that one thread may arrive for its warp's threads after __syncwarp().
  __device__ void Create() {
    for (cuda::SharedBarrier& barrier : full) barrier.Create(1);
    for (cuda::SharedBarrier& barrier : empty) barrier.Create(Tiling::kWriters);
    for (cuda::SharedBarrier& barrier : parts) barrier.Create(Tiling::kReducers * 32);
    for (cuda::SharedBarrier& barrier : totals) barrier.Create(32);
    for (cuda::SharedBarrier& barrier : taken) barrier.Create(Tiling::kWriters * 32);
    for (cuda::SharedBarrier& barrier : arrived) barrier.Create(1);
  }
};

// Arrives once for each warp, after all its threads have come.
__device__ inline void ArriveWarp(cuda::SharedBarrier* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier->Arrive();
}

// ---- Filling ----

// Used by one thread.
template <typename Tiling>
class RingFeed {
 public:
  __device__ RingFeed(const RingWork<Tiling>& work, const CUtensorMap* map,
                      RingShared<Tiling>* shared, uint32_t ring)
      : work_(work),
        map_(map),
        shared_(shared),
        ring_(ring),
        chunk_bytes_(static_cast<uint32_t>(work.tensor.plan.chunk_rows) * Tiling::kRowBytes),
        panel_(work.first_panel) {}

  // Fills an empty ring.
  __device__ void Begin() {
    for (int i = 0; i < kRingStages && panel_ < work_.end; ++i) Put();
  }

  // Puts all remaining chunks.
  __device__ void Finish() {
    while (panel_ < work_.end) {
      shared_->empty[place_.stage].Wait(place_.parity ^ 1);
      Put();
    }
  }

 private:
  __device__ void Put() {
    cuda::SharedBarrier& full = shared_->full[place_.stage];
    full.ArriveExpecting(chunk_bytes_);
    const cuda::BoxPlace at = {
        static_cast<int32_t>(panel_ % work_.tensor.plan.across) * Tiling::kColumns,
        work_.first_row + chunk_ * work_.tensor.plan.chunk_rows,
        static_cast<int32_t>(panel_ / work_.tensor.plan.across),
    };
    cuda::CopyBoxToShared(ring_ + place_.stage * kRingChunkBytes, map_, at, full);
    place_.Advance();
    if (++chunk_ < work_.tensor.plan.chunks) return;
    chunk_ = 0;
    panel_ += work_.step;
  }

  const RingWork<Tiling>& work_;
  const CUtensorMap* const map_;
  RingShared<Tiling>* const shared_;
  const uint32_t ring_;
  const uint32_t chunk_bytes_;
  int64_t panel_;
  int chunk_ = 0;
  RingPlace place_;
};

__device__ inline uint4 LoadShared(uint32_t address) {
  uint4 vector;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "r"(address)
               : "memory");
  return vector;
}

// Loads one thread's vectors of a chunk, which holds kCount for each of kThreads threads.
template <int kThreads, typename Vector, int kCount>
__device__ void LoadChunk(uint32_t chunk, int thread, Vector (&vectors)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    vectors[i] = {LoadShared(chunk + static_cast<uint32_t>(thread + i * kThreads) * 16)};
}

// ---- Reducing ----

// NaN may be lost.
template <typename T>
__device__ uint32_t MaxOfWords(uint32_t a, uint32_t b) {
  uint32_t max;
  if constexpr (std::is_same_v<T, Float16>) {
    asm("max.f16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
  } else {
    max = __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
  }
  return max;
}

template <typename Tiling>
class Reducer {
 public:
  using T = typename Tiling::T;
  using Vector = cuda::Vector<T>;
  static constexpr int kWidth = Tiling::kWidth;
  static constexpr int kThreads = Tiling::kReducers * 32;
  static constexpr int kVectors = Tiling::kChunkVectors / kThreads;

  __device__ Reducer() { Clear(); }

  __device__ void Clear() {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) part_[k] = {kLowest, 0};
  }

  // Adds a chunk, whose first `rows` rows exist.
  __device__ void Add(uint32_t chunk, int thread, int rows) {
    Vector raw[kVectors];
    LoadChunk<kThreads>(chunk, thread, raw);
    if (rows < Tiling::kChunkRows) {
      float nothing[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) nothing[k] = -INFINITY;
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if ((thread + i * kThreads) / Tiling::kLanes >= rows) raw[i] = Vector::Pack(nothing);
    }
    Merge(raw);
  }

  // Merges over all threads of the warp that share the columns.
  __device__ void MergeWarp() {
    float max[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) max[k] = part_[k].max;
#pragma unroll
    for (int distance = 16; distance >= Tiling::kLanes; distance /= 2) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        max[k] = fmaxf(max[k], __shfl_xor_sync(0xFFFFFFFFu, max[k], distance));
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) part_[k] = {max[k], part_[k].sum * Exp(part_[k].max - max[k])};
#pragma unroll
    for (int distance = 16; distance >= Tiling::kLanes; distance /= 2) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        part_[k].sum += __shfl_xor_sync(0xFFFFFFFFu, part_[k].sum, distance);
    }
  }

  __device__ MaxSum operator[](int k) const { return part_[k]; }

 private:
  // Finds the maxima first, so that sums are scaled once for all vectors.
  __device__ void Merge(const Vector (&raw)[kVectors]) {
    uint4 top = raw[0].raw;
#pragma unroll
    for (int i = 1; i < kVectors; ++i) {
      top.x = MaxOfWords<T>(top.x, raw[i].raw.x);
      top.y = MaxOfWords<T>(top.y, raw[i].raw.y);
      top.z = MaxOfWords<T>(top.z, raw[i].raw.z);
      top.w = MaxOfWords<T>(top.w, raw[i].raw.w);
    }
    float value[kWidth];
    Vector{top}.Unpack(value);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float max = fmaxf(part_[k].max, value[k]);
      part_[k] = {max, part_[k].sum * Exp(part_[k].max - max)};
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      raw[i].Unpack(value);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) part_[k].sum += Exp(value[k] - part_[k].max);
    }
  }

  MaxSum part_[kWidth];
};

// `thread` is counted among those with this task, here and below.
template <typename Tiling>
__device__ void ReducePanels(const RingWork<Tiling>& work, RingShared<Tiling>* shared,
                             uint32_t ring, int thread) {
  RingPlace place;
  Turn turn;
  for (int64_t panel = work.first_panel; panel < work.end; panel += work.step, ++turn.number) {
    Reducer<Tiling> reducer;
    for (int chunk = 0; chunk < work.tensor.plan.chunks; ++chunk) {
      shared->full[place.stage].Wait(place.parity);
      reducer.Add(ring + place.stage * kRingChunkBytes, thread, work.RowsOf(chunk));
      place.Advance();
    }
    reducer.MergeWarp();
    const uint32_t slot = turn.slot();
    // Then what this slot held has been merged.
    if (turn.HasBefore()) shared->totals[slot].Wait(turn.parity() ^ 1);
    const int lane = thread % 32;
    if (lane < Tiling::kLanes) {
#pragma unroll
      for (int k = 0; k < Tiling::kWidth; ++k)
        shared->warps[slot][thread / 32][lane * Tiling::kWidth + k] = reducer[k];
    }
    shared->parts[slot].Arrive();
  }
}

// ---- Exchanging ----

template <int kCount>
__device__ MaxSum MergeParts(const MaxSum (&parts)[kCount]) {
  float max = parts[0].max;
#pragma unroll
  for (int i = 1; i < kCount; ++i) max = fmaxf(max, parts[i].max);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) sum += parts[i].sum * Exp(parts[i].max - max);
  return {max, sum};
}

// Called once for each column: sends to all blocks of the cluster, its own included. A
// message is overwritten two turns later, when its reader has sent that of one turn later.
template <typename Tiling>
__device__ void SendColumn(const RingWork<Tiling>& work, RingShared<Tiling>* shared, uint32_t slot,
                           int column) {
  MaxSum parts[Tiling::kReducers];
#pragma unroll
  for (int i = 0; i < Tiling::kReducers; ++i) parts[i] = shared->warps[slot][i][column];
  const MaxSum part = MergeParts(parts);
  cuda::SharedBarrier& arrived = shared->arrived[slot];
  const auto blocks = static_cast<uint32_t>(work.tensor.plan.blocks);
  if (column == 0) arrived.ArriveExpecting(blocks * Tiling::kColumns * sizeof(float2));
  for (uint32_t to = 0; to < blocks; ++to)
    cuda::SendToRank(&shared->blocks[slot][work.rank][column], arrived, to,
                     make_float2(part.max, part.sum));
}

template <typename Tiling>
__device__ MaxSum ReceiveColumn(RingShared<Tiling>* shared, Turn turn, int blocks, int column) {
  const uint32_t slot = turn.slot();
  shared->arrived[slot].Wait(turn.parity());
  MaxSum parts[kRingBlocksMax];
#pragma unroll
  for (int from = 0; from < kRingBlocksMax; ++from) {
    const float2 pair = shared->blocks[slot][from][column];
    parts[from] = from < blocks ? MaxSum{pair.x, pair.y} : MaxSum{kLowest, 0};
  }
  return MergeParts(parts);
}

// Called by all threads of one warp, which take columns `lane`, `lane` + 32, ...
template <typename Tiling>
__device__ void ExchangePanels(const RingWork<Tiling>& work, RingShared<Tiling>* shared, int lane) {
  Turn turn;
  for (int64_t panel = work.first_panel; panel < work.end; panel += work.step, ++turn.number) {
    const uint32_t slot = turn.slot();
    shared->parts[slot].Wait(turn.parity());
    for (int column = lane; column < Tiling::kColumns; column += 32)
      SendColumn(work, shared, slot, column);
    for (int column = lane; column < Tiling::kColumns; column += 32) {
      const MaxSum total = ReceiveColumn(shared, turn, work.tensor.plan.blocks, column);
      if (turn.HasBefore()) shared->taken[slot].Wait(turn.parity() ^ 1);
      shared->columns[slot][column] = make_float2(total.max, Reciprocal(total.sum));
    }
    shared->totals[slot].Arrive();
  }
}

// ---- Writing ----

// A panel's part of the columns that a thread writes.
template <typename Tiling>
class Writer {
 public:
  using T = typename Tiling::T;
  using Vector = cuda::Vector<T>;
  static constexpr int kWidth = Tiling::kWidth;
  static constexpr int kThreads = Tiling::kWriters * 32;
  static constexpr int kVectors = Tiling::kChunkVectors / kThreads;

  __device__ Writer(const RingWork<Tiling>& work, int64_t panel, int thread)
      : row_(thread / Tiling::kLanes), step_(work.tensor.shape.lanes * kWidth) {
    const RingTensor<T>& tensor = work.tensor;
    const int64_t lane = panel % tensor.plan.across * Tiling::kLanes + thread % Tiling::kLanes;
    const int64_t row = panel / tensor.plan.across * tensor.shape.n + work.first_row + row_;
    chunk_step_ = tensor.plan.chunk_rows * step_;
    has_column_ = lane < tensor.shape.lanes;
    y_ = tensor.y + (row * tensor.shape.lanes + lane) * kWidth;
  }

  __device__ void Take(const float2* columns) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      max_[k] = columns[k].x;
      scale_[k] = columns[k].y;
    }
  }

  // The next chunk, whose place is free again after `release`.
  template <typename Release>
  __device__ void Write(uint32_t chunk, int thread, int rows, const Release& release) {
    Vector raw[kVectors];
    LoadChunk<kThreads>(chunk, thread, raw);
    release();
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      constexpr int kRows = kThreads / Tiling::kLanes;
      float value[kWidth];
      raw[i].Unpack(value);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) value[k] = Exp(value[k] - max_[k]) * scale_[k];
      if (has_column_ && row_ + i * kRows < rows)
        Vector::Pack(value).StoreStreaming(y_ + i * kRows * step_);
    }
    y_ += chunk_step_;
  }

 private:
  T* y_;
  const int row_;
  const int64_t step_;  // from one row to the next
  int64_t chunk_step_;
  bool has_column_;
  float max_[kWidth];
  float scale_[kWidth];
};

template <typename Tiling>
__device__ void WritePanels(const RingWork<Tiling>& work, RingShared<Tiling>* shared, uint32_t ring,
                            int thread) {
  RingPlace place;
  Turn turn;
  for (int64_t panel = work.first_panel; panel < work.end; panel += work.step, ++turn.number) {
    Writer<Tiling> writer(work, panel, thread);
    const uint32_t slot = turn.slot();
    shared->totals[slot].Wait(turn.parity());
    writer.Take(&shared->columns[slot][thread % Tiling::kLanes * Tiling::kWidth]);
    shared->taken[slot].Arrive();
    for (int chunk = 0; chunk < work.tensor.plan.chunks; ++chunk) {
      // Full since the reducers read it, but only threads that wait here may see the copy's bytes.
      shared->full[place.stage].Wait(place.parity);
      writer.Write(ring + place.stage * kRingChunkBytes, thread, work.RowsOf(chunk),
                   [&] { ArriveWarp(&shared->empty[place.stage]); });
      place.Advance();
    }
  }
}

template <typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, 1)
    RingPerColumns(const __grid_constant__ CUtensorMap map,
                   const __grid_constant__ RingTensor<typename Tiling::T> tensor) {
  constexpr int kWriteFrom = Tiling::kReducers * 32;
  constexpr int kExchangeFrom = kWriteFrom + Tiling::kWriters * 32;
  constexpr int kFeeder = kExchangeFrom + 32;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ RingShared<Tiling> shared;
  static_assert(sizeof(shared) <= kRingFixedBytesMax);
  const uint32_t ring = cuda::SharedAddress(memory);
  const int thread = static_cast<int>(threadIdx.x);
  const RingWork<Tiling> work(tensor);
  RingFeed<Tiling> feed(work, &map, &shared, ring);
  if (thread == kFeeder) {
    shared.Create();
    cuda::SharedBarrier::PublishCreated();
  }
  __syncthreads();
  if (thread == kFeeder) feed.Begin();
  __syncwarp();
  cuda::SyncCluster();  // before messages
  if (thread < kWriteFrom) {
    ReducePanels(work, &shared, ring, thread);
  } else if (thread < kExchangeFrom) {
    WritePanels(work, &shared, ring, thread - kWriteFrom);
  } else if (thread < kFeeder) {
    ExchangePanels(work, &shared, thread % 32);
  } else if (thread == kFeeder) {
    feed.Finish();
  }
}

}  // namespace warpcall::softmax
