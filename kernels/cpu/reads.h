// Reads of this CPU's memory: the ceiling that kernels which write next to nothing are compared
// with.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/reads.h"

namespace warpcall::cpu {

// Reads `bytes` bytes with all workers, in vectors as wide as the implementations' own. Returns the
// exclusive or of all 8-byte words. REQUIRES: `data` is aligned to, and `bytes` divisible by,
// kOperandAlignmentBytes.
uint64_t ReadMemory(const Workers& workers, const void* data, int64_t bytes);

// A ReadsSource for the CPU.
absl::StatusOr<PlanPtr> ReadsOn(int64_t bytes, const DeviceProperties& device);

}  // namespace warpcall::cpu
