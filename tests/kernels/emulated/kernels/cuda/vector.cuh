// Stands in for the needed parts of kernels/cuda/vector.cuh on the CPU.
#pragma once

#include <cstdint>

#include "proto/common/half.h"
#include "tests/kernels/emulated/hopper.h"

namespace warpcall::cuda {

template <typename T>
float Widen(T value) {
  return ToFloat(value);
}

template <typename T>
T Narrow(float value) {
  return FromFloat<T>(value);
}

template <typename T, int kWidth>
struct Vector {
  T values[kWidth];

  static Vector Pack(const float (&floats)[kWidth]) {
    Vector vector;
    for (int i = 0; i < kWidth; ++i) vector.values[i] = Narrow<T>(floats[i]);
    return vector;
  }
  void Store(T* at) const {
    if (reinterpret_cast<uintptr_t>(at) % sizeof(Vector) != 0)
      emulated::Fail("a vector is stored where none begins");
    for (int i = 0; i < kWidth; ++i) at[i] = values[i];
  }
};

template <typename T>
void WidenPair(uint32_t pair, float* first, float* second) {
  *first = ToFloat(T{static_cast<uint16_t>(pair)});
  *second = ToFloat(T{static_cast<uint16_t>(pair >> 16)});
}

template <typename T>
uint32_t NarrowPair(float first, float second) {
  return FromFloat<T>(first).bits | uint32_t{FromFloat<T>(second).bits} << 16;
}

}  // namespace warpcall::cuda
