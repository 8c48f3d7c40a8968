// For builds without CUPTI's headers.
#include "server/runtime/cuda/cupti_profiler.h"

namespace warpcall {

absl::StatusOr<std::unique_ptr<DeviceProfiler>> CreateCuptiProfiler(CudaDevice*) {
  return absl::UnimplementedError(
      "this build cannot profile GPUs: it was made without the headers of CUPTI 13");
}

}  // namespace warpcall
