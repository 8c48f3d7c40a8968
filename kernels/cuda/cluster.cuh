// Blocks of one cluster run at the same time and write to each other's shared memory; hardware
// copies write there, too. Barriers in shared memory signal both. Only for compute capability 9.0
// and later: on other devices the code that uses this does nothing, and its implementations refuse
// the device. The instructions are those of NVIDIA's PTX ISA 8.0, chapters mbarrier, cp.async.bulk,
// cp.async.bulk.tensor and st.async.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"

namespace warpcall::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define WARPCALL_CLUSTER_ASM(...) asm volatile(__VA_ARGS__)
inline constexpr bool kHasClusters = true;
#else
#define WARPCALL_CLUSTER_ASM(...) (void)0
inline constexpr bool kHasClusters = false;
#endif

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The number of this block in its cluster.
__device__ inline uint32_t ClusterRank() {
  uint32_t rank = 0;
  WARPCALL_CLUSTER_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline uint32_t ClusterBlocks() {
  uint32_t blocks = 1;
  WARPCALL_CLUSTER_ASM("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// All threads of the cluster meet; what they wrote to shared memory before is seen by all after.
__device__ inline void SyncCluster() {
  WARPCALL_CLUSTER_ASM("barrier.cluster.arrive.release.aligned;" ::: "memory");
  WARPCALL_CLUSTER_ASM("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Counts arrivals and expected bytes; a phase ends when all have come, and the next phase begins.
// The parity identifies a phase, 0 for the first.
class SharedBarrier {
 public:
  // Called by one thread. Others may use it after a barrier of the block, or of the cluster.
  __device__ void Create(uint32_t arrivals) {
    WARPCALL_CLUSTER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                         : "memory");
  }

  // Makes the barriers visible to other blocks and the hardware's copies. Called by the thread that
  // created them, after the last.
  static __device__ void PublishCreated() {
    WARPCALL_CLUSTER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  __device__ void Arrive() {
    WARPCALL_CLUSTER_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }

  // Arrives, and makes the phase wait for `bytes` more.
  __device__ void ArriveExpecting(uint32_t bytes) {
    WARPCALL_CLUSTER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                         "r"(bytes)
                         : "memory");
  }

  // Returns when the phase of this parity has ended.
  __device__ void Wait(uint32_t parity) {
    uint32_t ended = 0;
    while (kHasClusters && ended == 0) {
      WARPCALL_CLUSTER_ASM(
          "{\n\t.reg .pred ended;\n\t"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n\t"
          "selp.u32 %0, 1, 0, ended;\n\t}"
          : "=r"(ended)
          : "r"(address()), "r"(parity)
          : "memory");
    }
  }

  __device__ uint32_t address() const { return SharedAddress(this); }

 private:
  uint64_t state_;
};

// Copies to this block's shared memory, in the order of memory, and reports the bytes to `barrier`.
// `from` is in global memory; both addresses and `bytes` are multiples of 16.
__device__ inline void CopyToShared(uint32_t to, const void* from, uint32_t bytes,
                                    const SharedBarrier& barrier) {
  WARPCALL_DEVICE_CHECK(to % 16 == 0 && bytes % 16 == 0);
  WARPCALL_CLUSTER_ASM(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier.address())
      : "memory");
}

// Start of a box in a tensor of three dimensions, the fastest first.
struct BoxPlace {
  int32_t x;
  int32_t y;
  int32_t z;
};

// Copies a box of the tensor that `map` describes to this block's shared memory, which is aligned
// to 128 bytes, and reports all of the box's bytes to `barrier`. Elements outside the tensor arrive
// as zeros.
__device__ inline void CopyBoxToShared(uint32_t to, const void* map, const BoxPlace& at,
                                       const SharedBarrier& barrier) {
  WARPCALL_DEVICE_CHECK(to % 128 == 0);
  WARPCALL_CLUSTER_ASM(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier.address())
      : "memory");
}

// Writes a pair to the block of that rank, where `at` lies there, and reports its 8 bytes to
// `barrier` there. `at` is in shared memory and aligned to 8 bytes.
__device__ inline void SendToRank(float2* at, const SharedBarrier& barrier, uint32_t rank,
                                  float2 pair) {
  WARPCALL_DEVICE_CHECK(rank < ClusterBlocks());
  [[maybe_unused]] uint32_t to = 0;
  [[maybe_unused]] uint32_t tell = 0;
  WARPCALL_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %1, %2;"
                       : "=r"(to)
                       : "r"(SharedAddress(at)), "r"(rank));
  WARPCALL_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %1, %2;"
                       : "=r"(tell)
                       : "r"(barrier.address()), "r"(rank));
  WARPCALL_CLUSTER_ASM(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "f"(pair.x), "f"(pair.y), "r"(tell)
      : "memory");
}

#undef WARPCALL_CLUSTER_ASM

}  // namespace warpcall::cuda
