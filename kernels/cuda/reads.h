// A GPU's reads at their best.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/reads.h"

namespace warpcall::cuda {

// A ReadsSource for GPUs. The device must be current.
absl::StatusOr<PlanPtr> ReadsOn(int64_t bytes, const DeviceProperties& device);

}  // namespace warpcall::cuda
