// Stands in for the needed parts of kernels/cuda/vector.cuh on the CPU.
#pragma once

#include <cstdint>

#include "proto/common/half.h"

namespace warpcall::cuda {

template <typename T>
T Narrow(float value) {
  return FromFloat<T>(value);
}

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
