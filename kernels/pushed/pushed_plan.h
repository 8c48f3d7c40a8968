// A kernel that a user pushed, on a GPU: its machine code, launched as its manifest says.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/device_properties.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/plan.h"

namespace warpcall::pushed {

// A launch may not take more local memory than this for all threads that the device holds at once.
inline constexpr int64_t kLocalBytesMax = int64_t{1} << 30;

// Loads the code onto the current device, `device`, once more: variables of the code have their
// first values. The plan's workspace is the scratch memory. INVALID_ARGUMENT where a kernel's
// parameters or threads are others than the launches', RESOURCE_EXHAUSTED over kLocalBytesMax,
// otherwise as cuda::ToStatus.
absl::StatusOr<PlanPtr> NewPushedPlan(compiled::CudaCode code,
                                      const manifest::KernelLaunches& launches, bool scratch_zero,
                                      const DeviceProperties& device);

}  // namespace warpcall::pushed
