// Parts of rows that stream through shared memory: the hardware copies them in, chunk by chunk, as
// far ahead as there is room, while threads work on what has come. So a multiprocessor reads memory
// all the time, also while its threads wait for other blocks of their cluster, and in long pieces,
// which memory likes: on an H200, threads that each copied their own vectors ahead moved 81 to 90 %
// of what a copy does.
#pragma once

#include <cstdint>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/device_check.cuh"

namespace warpcall::cuda {

// A chunk is one vector of 16 bytes for each of the block's kThreads threads.
template <int kThreadsIn, int kStages>
class RowRing {
 public:
  static constexpr int kThreads = kThreadsIn;
  static constexpr uint32_t kChunkBytes = kThreads * 16;
  static constexpr uint32_t kBytes = kStages * kChunkBytes;

  struct Shared {
    SharedBarrier full[kStages];

    // Called by one thread.
    __device__ void Create() {
      for (SharedBarrier& barrier : full) barrier.Create(1);
    }
  };

  // `memory` is kBytes of shared memory, aligned to 128 bytes.
  __device__ RowRing(Shared* shared, const void* memory)
      : shared_(shared), memory_(SharedAddress(memory)) {}

  // Returns true if there is room for a chunk. Called by the thread that puts. Taken chunks make
  // room after a barrier of the block.
  __device__ bool HasRoom() const { return held_ < kStages; }

  // Copies a chunk of at most kThreads vectors from global memory; without vectors the chunk is
  // empty. Called by the thread that puts.
  __device__ void Put(const void* from, int vectors) {
    WARPCALL_DEVICE_CHECK(HasRoom());
    if (vectors <= 0) {
      shared_->full[put_].Arrive();
    } else {
      const uint32_t bytes = 16u * static_cast<uint32_t>(min(vectors, kThreads));
      shared_->full[put_].ArriveExpecting(bytes);
      CopyToShared(memory_ + put_ * kChunkBytes, from, bytes, shared_->full[put_]);
    }
    put_ = put_ + 1 < kStages ? put_ + 1 : 0;
    ++held_;
  }

  // Returns this thread's vector of the next chunk, or meaningless bits if the chunk has none for
  // it. Called by all threads.
  __device__ uint4 Take() {
    shared_->full[take_].Wait(parity_);
    uint4 vector;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
                 : "r"(memory_ + take_ * kChunkBytes + threadIdx.x * 16)
                 : "memory");
    --held_;
    if (++take_ == kStages) {
      take_ = 0;
      parity_ ^= 1;
    }
    return vector;
  }

 private:
  Shared* const shared_;
  const uint32_t memory_;
  uint32_t put_ = 0;
  uint32_t take_ = 0;
  uint32_t parity_ = 0;  // parity of take_'s phase
  int held_ = 0;         // chunks put and not taken, as counted by the thread that puts
};

// Exchanges a pair of floats among the blocks of a cluster for every row; the first block adds the
// number of a later row. One-sided: a message to each block, no barrier of the cluster. Called by
// all threads of a block.
class ClusterExchange {
 public:
  static constexpr int kBlocksMax = 16;

  struct Shared {
    SharedBarrier arrived[2];
    alignas(8) float2 pairs[2][kBlocksMax + 1];  // the last: a row's number

    // Called by one thread.
    __device__ void Create() {
      for (SharedBarrier& barrier : arrived) barrier.Create(1);
    }
  };

  __device__ explicit ClusterExchange(Shared* shared) : shared_(shared) {}

  // Sets the row number that the first block sends beside its pair, from the next Send on. Only the
  // call of the first block's first thread counts.
  __device__ void Tell(int64_t row) { row_ = row; }

  // Sends this block's pair to all blocks. Called by the first warp; every thread then calls
  // Receive once. REQUIRES: all threads of this block have left the last Receive.
  __device__ void Send(float2 pair) {
    const uint32_t blocks = ClusterBlocks();
    const uint32_t lane = threadIdx.x;
    WARPCALL_DEVICE_CHECK(blocks <= kBlocksMax && lane < 32);
    SharedBarrier& arrived = shared_->arrived[slot_];
    if (lane == 0) arrived.ArriveExpecting((blocks + 1) * sizeof(float2));
    const auto row = __shfl_sync(0xFFFFFFFFu, row_, 0);
    if (lane >= blocks) return;
    SendToRank(&shared_->pairs[slot_][ClusterRank()], arrived, lane, pair);
    const float2 number = {__int_as_float(static_cast<int>(row)),
                           __int_as_float(static_cast<int>(row >> 32))};
    if (ClusterRank() == 0) SendToRank(&shared_->pairs[slot_][kBlocksMax], arrived, lane, number);
  }

  // The pairs of all blocks, by rank.
  __device__ const float2* Receive() {
    shared_->arrived[slot_].Wait(parity_);
    const float2* const pairs = shared_->pairs[slot_];
    const float2 number = pairs[kBlocksMax];
    row_ = static_cast<int64_t>(static_cast<uint64_t>(__float_as_uint(number.y)) << 32 |
                                __float_as_uint(number.x));
    slot_ ^= 1;
    parity_ ^= slot_ == 0 ? 1 : 0;
    return pairs;
  }

  // Returns the first block's row number in the message received last.
  __device__ int64_t row() const { return row_; }

 private:
  Shared* const shared_;
  int64_t row_ = 0;
  uint32_t slot_ = 0;
  uint32_t parity_ = 0;
};

// The rows of a cluster, each known kAhead rows before its turn. The first kAhead are given; for
// later ones clusters draw numbers, so that those whose multiprocessors are further from memory
// take fewer: with equal shares an H200 waited a tenth of the time for its slowest.
class RowQueue {
 public:
  static constexpr int kAhead = 3;

  // `next` is 0 when the kernel starts; null where clusters are as many as rows.
  __device__ explicit RowQueue(unsigned long long* next) : next_(next) {
    const int64_t blocks = ClusterBlocks();
    clusters_ = gridDim.x / blocks;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) rows_[i] = blockIdx.x / blocks + i * clusters_;
  }

  __device__ int64_t operator[](int i) const { return rows_[i]; }

  // Draws a row's number, for Push in all threads of the cluster. Called by one thread of it.
  __device__ int64_t Draw() const {
    if (next_ == nullptr) return INT64_MAX;
    return kAhead * clusters_ + static_cast<int64_t>(atomicAdd(next_, 1ull));
  }

  __device__ void Push(int64_t row) {
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i) rows_[i] = rows_[i + 1];
    rows_[kAhead - 1] = row;
  }

 private:
  unsigned long long* const next_;
  int64_t clusters_;
  int64_t rows_[kAhead];
};

}  // namespace warpcall::cuda
