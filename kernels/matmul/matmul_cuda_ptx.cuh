// The instructions of architecture 80 and later that the tiled kernels are made of. Addresses in
// shared memory are 32-bit, as the instructions take them.
#pragma once

#include <cstdint>

#include "proto/common/half.h"

namespace warpcall::matmul {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies kBytes (4 or 16) from global to shared memory without passing through registers; zeros
// without looking at `from` where `valid` is false. Copies of 16 bytes leave L1 alone and ask L2
// for whole lines.
template <int kBytes>
__device__ inline void CopyAsync(uint32_t to, const void* from, bool valid) {
  static_assert(kBytes == 4 || kBytes == 16);
  const int bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
  }
}

// Makes one group of the copies that this thread began since the last call.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until all but the `kPending` youngest groups of this thread have arrived.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Returns how many threads of the grid have drawn from the same counter before.
__device__ inline uint32_t DrawNumber(uint32_t* counter) { return atomicAdd(counter, 1u); }

// Raises a flag in global memory. Whoever sees it raised sees what this thread's warp has written
// before its last __syncwarp().
__device__ inline void RaiseFlag(uint32_t* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;\n" ::"l"(flag) : "memory");
}

__device__ inline void AwaitFlag(const uint32_t* flag) {
  uint32_t is_raised;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(is_raised) : "l"(flag) : "memory");
  } while (is_raised == 0);
}

// Loads past L1, which does not have what other blocks write meanwhile.
__device__ inline float4 LoadFromL2(const float4* from) { return __ldcg(from); }

__device__ inline void StoreShared16(uint32_t to, uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;\n" ::"r"(to), "h"(value) : "memory");
}

__device__ inline void StoreShared32(uint32_t to, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to), "r"(value) : "memory");
}

__device__ inline void StoreShared64(uint32_t to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(to), "f"(first), "f"(second) : "memory");
}

__device__ inline uint32_t LoadShared32(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(value) : "r"(from) : "memory");
  return value;
}

__device__ inline uint16_t LoadShared16(uint32_t from) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(value) : "r"(from) : "memory");
  return value;
}

__device__ inline uint4 LoadShared128(uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}

// Four matrices of 8 x 8 elements of 16 bits; lane 8 j + r gives the address of row r of matrix j
// and receives from each matrix elements 2 (lane % 4) and the next of row lane / 4, or of column
// lane / 4 when transposed.
template <bool kTranspose>
__device__ inline void LoadMatrices(uint32_t (&registers)[4], uint32_t address) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(address)
                 : "memory");
  }
}

// sums[16, 8] += a[16, 16] x b[16, 8], with the products and sums of the tensor cores: exact
// products, float32 sums.
template <typename T>
__device__ inline void MultiplyFragments(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1);

template <>
__device__ inline void MultiplyFragments<Float16>(float (&sums)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void MultiplyFragments<BFloat16>(float (&sums)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace warpcall::matmul
