// The kernel of cluster_per_row.
#pragma once

#include <cstdint>

#include "kernels/cuda/early_launch.cuh"
#include "kernels/cuda/row_ring.cuh"
#include "kernels/softmax/softmax_cuda_cluster.h"
#include "kernels/softmax/softmax_cuda_math.cuh"
#include "kernels/softmax/softmax_cuda_window.cuh"

namespace warpcall::softmax {

// Rows are whole vectors.
template <typename T, ClusterShape kShape>
struct ClusterTiling {
  static constexpr int kThreads = kShape.threads;
  static constexpr int kResident = kShape.resident;
  static constexpr int kWidth = WidestVector(sizeof(T));
  static constexpr int kVectors = kShape.elements / kWidth;
  using Ring = cuda::RowRing<kThreads, kShape.stages>;
  using HeldPart = Held<T, kWidth, kVectors, kThreads, /*kAligned=*/true>;
  static_assert(kShape.elements % kWidth == 0);
  // There is room for the next part while one is processed.
  static_assert(kShape.stages == 0 || kShape.stages > kVectors);
};

template <typename Tiling>
struct ClusterShared {
  typename Tiling::Ring::Shared ring;
  cuda::ClusterExchange::Shared exchange;
  MaxSum warps[2][Tiling::kThreads / 32];
};

// Merges the (maximum, sum) of a row over all blocks of a cluster; each thread brings a part.
// `between` runs once all threads of the block have arrived.
template <int kThreads, typename Between>
__device__ MaxSum MergeOfCluster(MaxSum part, MaxSum* warps, cuda::ClusterExchange* exchange,
                                 Between between) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kBlocksMax = cuda::ClusterExchange::kBlocksMax;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const MaxSum warp = MergeOfLanes<32>(part);
  if (lane == 0) warps[threadIdx.x / 32] = warp;
  __syncthreads();
  if (threadIdx.x < 32) {
    const MaxSum block = MergeOfLanes<kWarps>(warps[lane % kWarps]);
    exchange->Send(make_float2(block.max, block.sum));
  }
  between();
  const float2* const pairs = exchange->Receive();
  const bool is_pair = lane % kBlocksMax < static_cast<int>(cuda::ClusterBlocks());
  const float2 pair = is_pair ? pairs[lane % kBlocksMax] : make_float2(kLowest, 0);
  return MergeOfLanes<kBlocksMax>({pair.x, pair.y});
}

// Copies a block's parts of the coming rows into the ring. Used by one thread.
template <typename T, typename Tiling>
class Feed {
 public:
  // Puts as many chunks as there is room for, kVectors to a part.
  __device__ void Fill(const RowTensor<T>& tensor, VectorRange range, const cuda::RowQueue& rows,
                       typename Tiling::Ring* ring) {
    while (ring->HasRoom() && ahead_ < cuda::RowQueue::kAhead) {
      const int64_t row = ahead_ == 0 ? rows[0] : ahead_ == 1 ? rows[1] : rows[2];
      if (row >= tensor.rows) return;
      const Window<T> window = PartOfRow<Tiling::kWidth, /*kAligned=*/true>(tensor, row, range);
      const int first = chunk_ * Tiling::kThreads;
      ring->Put(window.x + window.start + first * Tiling::kWidth, window.whole - first);
      if (++chunk_ < Tiling::kVectors) continue;
      chunk_ = 0;
      ++ahead_;
    }
  }

  // The queue has moved on by a row.
  __device__ void Advance() { --ahead_; }

 private:
  static_assert(cuda::RowQueue::kAhead == 3);
  int ahead_ = 0;  // index of the row being put, among the queue's
  int chunk_ = 0;
};

// Clusters take rows, each block `share` vectors of a row. The first warp sends the block's
// (maximum, sum) to the other blocks, the last warp requests the coming rows.
template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kResident)
    ClusterPerRow(RowTensor<T> tensor, int share, unsigned long long* next) {
  using HeldPart = typename Tiling::HeldPart;
  constexpr int kFeeder = Tiling::kThreads - 32;
  extern __shared__ __align__(128) uint4 memory[];
  __shared__ ClusterShared<Tiling> shared;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == kFeeder) {
    shared.ring.Create();
    shared.exchange.Create();
    cuda::SharedBarrier::PublishCreated();
  }
  cuda::SyncCluster();
  typename Tiling::Ring ring(&shared.ring, memory);
  cuda::ClusterExchange exchange(&shared.exchange);
  cuda::RowQueue rows(next);
  Feed<T, Tiling> feed;
  const VectorRange range{static_cast<int64_t>(cuda::ClusterRank()) * share, share};
  if (thread == kFeeder) feed.Fill(tensor, range, rows, &ring);
  for (int slot = 0; rows[0] < tensor.rows; slot ^= 1) {
    exchange.Tell(thread == 0 && cuda::ClusterRank() == 0 ? rows.Draw() : 0);
    const Window<T> window = PartOfRow<Tiling::kWidth, /*kAligned=*/true>(tensor, rows[0], range);
    typename HeldPart::Fetched fetched;
#pragma unroll
    for (int i = 0; i < Tiling::kVectors; ++i) {
      const int v = thread + i * Tiling::kThreads;
      fetched.vectors[i] = {ring.Take()};
      if (v >= window.whole) fetched.vectors[i] = HeldPart::FetchOutside(window, v);
    }
    HeldPart held;
    held.Take(fetched, window, thread);
    const float max = held.Max();
    const float sum = held.Exponentiate(max);
    const MaxSum total =
        MergeOfCluster<Tiling::kThreads>({max, sum}, shared.warps[slot], &exchange, [&] {
          if (thread == kFeeder) feed.Fill(tensor, range, rows, &ring);
        });
    rows.Push(exchange.row());
    feed.Advance();
    held.Store(window, thread, ScaleOf(max, total));
  }
}

template <typename Tiling>
struct OneRowShared {
  cuda::ClusterExchange::Shared exchange;
  MaxSum warps[Tiling::kThreads / 32];
};

// One row per cluster, loaded straight into registers: for so few rows that no cluster gets a
// second.
template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads, Tiling::kResident)
    ClusterPerOneRow(RowTensor<T> tensor, int share) {
  using HeldPart = typename Tiling::HeldPart;
  __shared__ OneRowShared<Tiling> shared;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    shared.exchange.Create();
    cuda::SharedBarrier::PublishCreated();
  }
  const Window<T> window = PartOfRow<Tiling::kWidth, /*kAligned=*/true>(
      tensor, blockIdx.x / cuda::ClusterBlocks(),
      {static_cast<int64_t>(cuda::ClusterRank()) * share, share});
  cuda::AwaitKernelAhead();
  cuda::LetNextKernelBegin();
  const typename HeldPart::Fetched fetched =
      HeldPart::template Fetch</*kPastL1=*/true>(window, thread);
  cuda::SyncCluster();
  cuda::ClusterExchange exchange(&shared.exchange);
  HeldPart held;
  held.Take(fetched, window, thread);
  const float max = held.Max();
  const float sum = held.Exponentiate(max);
  const MaxSum total = MergeOfCluster<Tiling::kThreads>({max, sum}, shared.warps, &exchange, [] {});
  held.Store(window, thread, ScaleOf(max, total));
}

}  // namespace warpcall::softmax
