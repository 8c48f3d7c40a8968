// Input data to check rows with.
#pragma once

#include <cstdint>

#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"

namespace warpcall {

// Fills `data`, which has room for `spec`; the same for the same seed, whatever else ran before.
void FillInput(const TensorSpec& spec, Fill fill, uint64_t seed, void* data);

struct Filling {
  Fill fill;
  uint64_t seed;
};
// Likewise, by many threads; other values than those of one.
void FillInput(const TensorSpec& spec, Filling filling, void* data, cpu::ThreadPool& pool);

}  // namespace warpcall
