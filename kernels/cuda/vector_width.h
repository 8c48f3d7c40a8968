// Sizes of the widest access to global memory, in elements: plain C++, for code that chooses
// kernels without a GPU.
#pragma once

#include <cstddef>

namespace warpcall::cuda {

inline constexpr int kVectorBytes = 16;

// Returns the elements of `element_bytes` in the widest vector.
constexpr int WidestVector(size_t element_bytes) {
  return kVectorBytes / static_cast<int>(element_bytes);
}

}  // namespace warpcall::cuda
