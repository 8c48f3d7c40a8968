// Finds out at start whether this build has code for a GPU, instead of at the first request.
#pragma once

#include "absl/status/status.h"
#include "kernels/device_properties.h"

namespace warpcall::cuda {

// FAILED_PRECONDITION names the device's compute capability and those of this build. REQUIRES: the
// device is current.
absl::Status CheckDeviceCode(const DeviceProperties& device);

}  // namespace warpcall::cuda
