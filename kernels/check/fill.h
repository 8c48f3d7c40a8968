// Input data to check rows with.
#pragma once

#include <cstdint>

#include "kernels/check/cases.h"

namespace warpcall {

// Fills `data`, which has room for `spec`; the same for the same seed, whatever else ran before.
void FillInput(const TensorSpec& spec, Fill fill, uint64_t seed, void* data);

}  // namespace warpcall
