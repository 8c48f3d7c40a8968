// Inputs that nobody gave.
#pragma once

#include <cstdint>
#include <random>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace warpcall::cli {

enum class Distribution : uint8_t {
  // Magnitudes from 1/16 to 1, so that none is zero or subnormal in any type, and either sign.
  kAwayFromZero,
  // N(0, 1).
  kNormal,
};

// The same on every machine for a state of `random`, but for rounding in the mathematical library.
// INVALID_ARGUMENT when the bytes overflow, RESOURCE_EXHAUSTED when there is no memory for them.
absl::StatusOr<client::Tensor> RandomTensor(const client::TensorSpec& spec,
                                            Distribution distribution, std::mt19937_64* random);

}  // namespace warpcall::cli
