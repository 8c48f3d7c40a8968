#include "server/runtime/cuda/cupti_profiler.h"

#include "kernels/cuda/driver_function.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cuda_device.h"
#include "server/runtime/cuda/cupti_api.h"
#include "server/runtime/cuda/cupti_counters.h"
#include "server/runtime/cuda/cupti_trace.h"

namespace warpcall {
namespace {

class CuptiProfiler final : public DeviceProfiler {
 public:
  CuptiProfiler(const cupti::Api& api, CudaDevice* device)
      : api_(api), device_(device), trace_(api, device->properties().ordinal) {}

  absl::Status StartTrace() override {
    RETURN_IF_ERROR(device_->MakeCurrent());
    return trace_.Start();
  }

  absl::StatusOr<std::vector<DeviceActivity>> StopTrace() override {
    // Streams may have been waited for by polling events, after which CUPTI has not yet looked for
    // the times of the last kernels.
    RETURN_IF_ERROR(Synchronize());
    return trace_.Stop();
  }

  absl::StatusOr<std::vector<KernelCounters>> Count(
      absl::FunctionRef<absl::Status()> work) override {
    RETURN_IF_ERROR(Synchronize());
    ASSIGN_OR_RETURN(const CUcontext context, CurrentContext());
    return cupti::CountKernels(api_, {device_->properties().ordinal, context}, [&] {
      RETURN_IF_ERROR(work());
      return Synchronize();
    });
  }

 private:
  absl::Status Synchronize() {
    RETURN_IF_ERROR(device_->MakeCurrent());
    return device_->Check(cudaDeviceSynchronize(), "waiting for the device");
  }

  // The one that the runtime uses for the device, which is the calling thread's.
  absl::StatusOr<CUcontext> CurrentContext() {
    constexpr unsigned int kVersion = 12000;  // unchanged since 4.0
    ASSIGN_OR_RETURN(const auto get_current, cuda::FindDriverFunction<decltype(&cuCtxGetCurrent)>(
                                                 "cuCtxGetCurrent", kVersion));
    CUcontext context = nullptr;
    if (get_current(&context) != CUDA_SUCCESS || context == nullptr)
      return absl::InternalError("the driver does not tell which context is in use");
    return context;
  }

  const cupti::Api& api_;
  CudaDevice* const device_;
  cupti::Trace trace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceProfiler>> CreateCuptiProfiler(CudaDevice* device) {
  const cupti::Api* api;
  ASSIGN_OR_RETURN(api, cupti::Load());
  return std::make_unique<CuptiProfiler>(*api, device);
}

}  // namespace warpcall
