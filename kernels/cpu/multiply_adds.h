// Measures the peak of this CPU's multiply-adds: the ceiling that compute-bound kernels are
// compared with.
#pragma once

#include <cstdint>

#include "kernels/cpu/thread_pool.h"

namespace warpcall::cpu {

// FLOPs, two for each multiply-add in float32 on vectors as wide as the rows' own, that keep every
// thread busy for about `rounds` microseconds. Nothing is read from memory or written to it.
int64_t MultiplyAdds(ThreadPool& pool, int64_t rounds);

}  // namespace warpcall::cpu
