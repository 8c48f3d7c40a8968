// The epilogues of linear, which a product's sums go through before they are rounded. No Abseil:
// CUDA files include this.
#pragma once

#include <cstdint>

namespace warpcall::matmul {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluErf };

// Adds the bias, one element for each column, and applies the activation.
struct Epilogue {
  Activation activation = Activation::kNone;
};

}  // namespace warpcall::matmul
