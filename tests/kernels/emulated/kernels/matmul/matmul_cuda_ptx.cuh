// Stands in for the needed parts of kernels/matmul/matmul_cuda_ptx.cuh on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "tests/kernels/emulated/hopper.h"

namespace warpcall::matmul {

template <typename T>
T LoadSharedAs(uint32_t from) {
  T value;
  std::memcpy(&value, emulated::Shared(from, sizeof(T)), sizeof(T));
  return value;
}

inline uint32_t DrawNumber(uint32_t* counter) { return (*counter)++; }
inline void RaiseFlag(uint32_t* flag) { *flag = 1; }
inline void AwaitFlag(const uint32_t* flag) {
  emulated::WaitUntil([flag] { return *flag == 1; });
}
inline float4 LoadFromL2(const float4* from) { return *from; }

inline uint32_t SharedAddress(const void* pointer) { return emulated::AddressOf(pointer); }

template <int kBytes>
void CopyAsync(uint32_t to, const void* from, bool valid) {
  emulated::Self().copies.Add([to, from, valid] {
    char* const place = emulated::Shared(to, kBytes);
    std::memset(place, 0, kBytes);
    if (valid) std::memcpy(place, from, kBytes);
  });
}

inline void CommitCopies() { emulated::Self().copies.Commit(); }

template <int kPending>
void WaitForCopies() {
  emulated::Self().copies.WaitForAllBut(kPending);
}

// Takes effect at the thread's FenceForCopies: the asynchronous instructions, which alone read
// these words, see none of it before.
inline void StoreShared16(uint32_t to, uint16_t value) {
  emulated::Self().writes.Add([place = emulated::Shared(to, sizeof(value)), value] {
    std::memcpy(place, &value, sizeof(value));
  });
}

inline void StoreShared64(uint32_t to, float first, float second) {
  const float pair[] = {first, second};
  std::memcpy(emulated::Shared(to, sizeof(pair)), pair, sizeof(pair));
}

inline uint32_t LoadShared32(uint32_t from) { return LoadSharedAs<uint32_t>(from); }
inline uint16_t LoadShared16(uint32_t from) { return LoadSharedAs<uint16_t>(from); }
inline uint4 LoadShared128(uint32_t from) { return LoadSharedAs<uint4>(from); }

}  // namespace warpcall::matmul
