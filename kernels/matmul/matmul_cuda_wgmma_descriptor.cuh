// Descriptors of wgmma's operands in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_check.cuh"
#include "kernels/matmul/matmul_cuda_select.h"

namespace warpcall::matmul {

// The instruction's descriptor of an operand that a box of 128-byte rows with 128-byte swizzle was
// copied to (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"): addresses and
// strides in 16 bytes. Eight rows make 1024 bytes. With k adjacent the outer index continues after
// them; else 8 terms of k do, and the box of the next 64 outer indices, 64 rows of k, is 8192 bytes
// away.
template <Adjacent kAdjacent>
__device__ inline uint64_t DescriptorOf(uint32_t address) {
  WARPCALL_DEVICE_CHECK(address % 1024 == 0, address);
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kChunk = uint64_t{kAdjacent == Adjacent::kDepth ? 1 : 8192 >> 4} << 16;
  return kSwizzle128 | kEightRows | kChunk | (address & 0x3FFFF) >> 4;
}

// The addend that moves a descriptor to the next 32 bytes of k.
template <Adjacent kAdjacent>
inline constexpr uint64_t kDescriptorStep = (kAdjacent == Adjacent::kDepth ? 32 : 2048) >> 4;

}  // namespace warpcall::matmul
