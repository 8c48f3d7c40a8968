// CUPTI's view of one GPU. CMake compiles cupti_profiler.cc, or cupti_absent.cc where CUPTI's
// headers are missing.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/runtime/device.h"

namespace warpcall {

class CudaDevice;

// `device` outlives the profiler. UNIMPLEMENTED where this build has no CUPTI; UNAVAILABLE says why
// the library could not be opened.
absl::StatusOr<std::unique_ptr<DeviceProfiler>> CreateCuptiProfiler(CudaDevice* device);

}  // namespace warpcall
