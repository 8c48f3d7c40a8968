// Stands in for kernels/matmul/matmul_cuda_wgmma_multiply.cuh on the CPU: descriptors are read as
// the PTX ISA says ("Asynchronous Warpgroup Level Matrix Shared Memory Layout",
// "Register Fragments for wgmma.mma_async"). Sums are rounded once an instruction.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul_cuda_ptx.cuh"
#include "kernels/matmul/matmul_cuda_select.h"
#include "kernels/matmul/matmul_cuda_wgmma_descriptor.cuh"
#include "proto/common/half.h"
#include "tests/kernels/emulated/hopper.h"

namespace warpcall::matmul {

inline void FenceSums() {}
inline void CommitProducts() { emulated::Self().multiplications.Commit(); }
template <int kPending>
void WaitForProducts() {
  emulated::Self().multiplications.WaitForAllBut(kPending);
}

inline float TruncatedToTf32(uint32_t bits) { return std::bit_cast<float>(bits & 0xFFFFE000); }

// Reads an operand's element from shared memory.
template <typename T, Adjacent kAdjacent>
float ElementOf(uint64_t descriptor, uint32_t outer, uint32_t k) {
  const auto field = [&](int from) {
    return static_cast<uint32_t>(descriptor >> from & 0x3FFF) << 4;
  };
  const uint32_t eight_rows = field(32);
  uint32_t address = field(0);
  if (kAdjacent == Adjacent::kDepth) {
    address += outer / 8 * eight_rows + outer % 8 * 128 + k * static_cast<uint32_t>(sizeof(T));
  } else {
    address += outer / 64 * field(16) + k / 8 * eight_rows + k % 8 * 128 +
               outer % 64 * static_cast<uint32_t>(sizeof(T));
  }
  address = emulated::Swizzled(address);
  if constexpr (sizeof(T) == 4) {
    return TruncatedToTf32(LoadSharedAs<uint32_t>(address));
  } else {
    return ToFloat(LoadSharedAs<T>(address));
  }
}

// This thread's sums: += or = a x b, which are elements of a row and of a column of the
// warpgroup's tile.
template <uint32_t kTerms, size_t kSums, typename A, typename B>
void AddProducts(float (&sums)[kSums], bool add, const A& a, const B& b) {
  const uint32_t lane = threadIdx.x % 32;
  float rows[2][kTerms];
  for (uint32_t half = 0; half < 2; ++half)
    for (uint32_t k = 0; k < kTerms; ++k)
      rows[half][k] = a(threadIdx.x / 32 % 4 * 16 + lane / 4 + half * 8, k);
  for (uint32_t group = 0; group < kSums / 4; ++group) {
    for (uint32_t pair = 0; pair < 2; ++pair) {
      float column[kTerms];
      for (uint32_t k = 0; k < kTerms; ++k) column[k] = b(group * 8 + lane % 4 * 2 + pair, k);
      for (uint32_t half = 0; half < 2; ++half) {
        float& sum = sums[group * 4 + half * 2 + pair];
        double total = add ? sum : 0;
        for (uint32_t k = 0; k < kTerms; ++k) total += double{rows[half][k]} * column[k];
        sum = static_cast<float>(total);
      }
    }
  }
}

template <typename T, Adjacent kA, Adjacent kB>
struct Wgmma {
  template <size_t kSums>
  static void Multiply(float (&sums)[kSums], uint64_t a, uint64_t b, int add) {
    emulated::Self().multiplications.Add([&sums, a, b, add] {
      AddProducts<32 / sizeof(T)>(
          sums, add != 0, [a](uint32_t row, uint32_t k) { return ElementOf<T, kA>(a, row, k); },
          [b](uint32_t column, uint32_t k) { return ElementOf<T, kB>(b, column, k); });
    });
  }
};

// Fragments of a: each thread shows its own, and takes those of the four that share its rows.
template <size_t kSums>
void MultiplyFromRegisters(float (&sums)[kSums], const uint32_t* a, uint64_t b, int add) {
  constexpr uint32_t kThreads = 128;
  const uint32_t thread = threadIdx.x % kThreads;
  const uint32_t number = emulated::Self().products++;
  // Beyond the warps' own boards; the fifth word says that a thread's four are there.
  const uint32_t key = 64 + number * 4 + threadIdx.x / kThreads;
  std::vector<uint32_t>& board = emulated::Board(key, kThreads * 5);
  for (uint32_t i = 0; i < 4; ++i) board[thread * 5 + i] = a[i];
  board[thread * 5 + 4] = 1;
  emulated::Self().multiplications.Add([&sums, &board, thread, b, add] {
    const uint32_t first = thread / 4 * 4 * 5;
    emulated::WaitUntil([&] {
      return board[first + 4] + board[first + 9] + board[first + 14] + board[first + 19] == 4;
    });
    AddProducts<8>(
        sums, add != 0,
        [&](uint32_t row, uint32_t k) {
          return TruncatedToTf32(board[first + k % 4 * 5 + k / 4 * 2 + row % 16 / 8]);
        },
        [b](uint32_t column, uint32_t k) {
          return ElementOf<float, Adjacent::kDepth>(b, column, k);
        });
  });
}

}  // namespace warpcall::matmul
