// Launches that only read, to measure how fast a device's memory can be read: the ceiling of
// kernels that write next to nothing. On a GPU such kernels can exceed a copy, because its memory
// loses time when it turns between reads and writes.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "kernels/device_properties.h"
#include "kernels/plan.h"

namespace warpcall {

// Returns a plan whose launches read `bytes` bytes of memory, from the first of input 0 on, and
// write nothing. It needs no outputs and no workspace. UNIMPLEMENTED for a device of another kind.
// REQUIRES: `bytes` is above 0, and divisible by kOperandAlignmentBytes.
using ReadsSource = std::function<absl::StatusOr<PlanPtr>(int64_t bytes, const DeviceProperties&)>;

}  // namespace warpcall
