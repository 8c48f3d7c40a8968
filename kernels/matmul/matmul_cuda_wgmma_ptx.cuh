// The instructions of architecture 90a that wgmma_tiled's kernel is made of, but for the
// multiplication itself: barriers in shared memory that count bytes, copies of boxes of tensors,
// registers that warpgroups give each other. Addresses in shared memory are 32-bit.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace warpcall::matmul {

// ---- Clusters: blocks that run at once and reach each other's shared memory. ----

__device__ inline uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}

// The barrier of all threads of the cluster; each arrives once and waits once.
__device__ inline void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
}
__device__ inline void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}
__device__ inline void ClusterSync() {
  ClusterArrive();
  ClusterWait();
}

// Stores a word at address `to` of block `rank`'s shared memory. Seen after the cluster's barrier.
__device__ inline void StoreAt(uint32_t to, uint32_t rank, uint32_t word) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "st.shared::cluster.u32 [there], %2;\n\t}\n" ::"r"(to),
      "r"(rank), "r"(word)
      : "memory");
}

// Stores four floats at address `to` of block `rank`'s shared memory; the barrier at address
// `barrier` there counts their 16 bytes.
__device__ inline void SendFour(uint32_t to, uint32_t barrier, uint32_t rank, const float* four) {
  asm volatile(
      "{\n\t.reg .b32 there, tell;\n\t"
      "mapa.shared::cluster.u32 there, %0, %2;\n\t"
      "mapa.shared::cluster.u32 tell, %1, %2;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
      "{%3, %4, %5, %6}, [tell];\n\t}\n" ::"r"(to),
      "r"(barrier), "r"(rank), "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
      : "memory");
}

// ---- Barriers: a phase ends when `count` threads have arrived and all expected bytes are in. ----

__device__ inline void InitBarrier(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(count) : "memory");
}

// Makes barriers that this thread has initialised seen by copies and by the cluster's blocks.
__device__ inline void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// Arrives, and adds to the bytes that the phase waits for.
__device__ inline void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ inline void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// Arrives at the barrier at this address in block `rank` of the cluster. The arrival only reports
// that multiplications have read a stage, which copies may now fill: it publishes nothing that
// threads wrote. Released for the cluster it would cost a fence of all memory, which halved the
// kernel's speed.
__device__ inline void ArriveAt(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\t"
      "mapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Waits until the phase of this parity has ended. Phases count 0, 1, 0, ...; the one before the
// first counts as ended.
__device__ inline void WaitFor(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}\n"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// As WaitFor, for data that threads of other blocks have sent.
__device__ inline void WaitForCluster(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}\n"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// ---- Copies of boxes of three-dimensional tensors, fastest coordinate first. ----

struct Coordinates {
  int32_t x;
  int32_t y;
  int32_t z;
};

__device__ inline void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// The address that a box is copied to, and the barrier that counts its bytes.
struct Landing {
  uint32_t to;
  uint32_t barrier;
};

// Elements outside the tensor arrive as zeros and count.
__device__ inline void LoadBox(const CUtensorMap* map, const Coordinates& at,
                               const Landing& landing) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];\n" ::"r"(landing.to),
      "l"(map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(landing.barrier)
      : "memory");
}

// Copies to this address, and counts at the barrier there, in each block whose bit is set.
__device__ inline void LoadBoxForAll(const CUtensorMap* map, const Coordinates& at,
                                     const Landing& landing, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;\n" ::"r"(landing.to),
      "l"(map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(landing.barrier), "h"(blocks)
      : "memory");
}

// Elements outside the tensor are not written.
__device__ inline void StoreBox(const CUtensorMap* map, const Coordinates& at, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n" ::
          "l"(map),
      "r"(at.x), "r"(at.y), "r"(at.z), "r"(from)
      : "memory");
}

// Makes one group of the stores that this thread began since the last call.
__device__ inline void CommitStores() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// Waits until all but this thread's `kPending` youngest groups have read shared memory.
template <int kPending>
__device__ inline void WaitForStoresToRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory");
}

// Makes this thread's writes to shared memory visible to copies and multiplications that begin
// after a barrier.
__device__ inline void FenceForCopies() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Synchronises the calling warpgroup's 128 threads.
__device__ inline void SyncWarpgroup() {
  asm volatile("bar.sync %0, 128;\n" ::"r"(1 + threadIdx.x / 128) : "memory");
}

// ---- Registers. ----

// Called by all warps of a warpgroup at once. One may take what another gives up.
template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// Stores four matrices of 8 x 8 elements of 16 bits. Lane 8 j + r gives the address of row r of
// matrix j and has elements 2 (lane % 4) and the next of row lane / 4 of each matrix.
__device__ inline void StoreMatrices(uint32_t address, const uint32_t (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
               "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}

__device__ inline void LoadShared64(uint32_t from, uint32_t* pair) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n"
               : "=r"(pair[0]), "=r"(pair[1])
               : "r"(from)
               : "memory");
}

__device__ inline float LoadSharedFloat(uint32_t from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(value) : "r"(from) : "memory");
  return value;
}

}  // namespace warpcall::matmul
