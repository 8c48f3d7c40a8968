#include <cstdio>

#include "server/runtime/cpu/cpu_device.h"
#include "server/runtime/cuda/cuda_device.h"
#include "tests/server/runtime/device_kinds.h"

namespace warpcall::testing {

std::vector<KindOfDevice> DeviceKinds() {
  const auto open_cpu = [] { return std::unique_ptr<Device>(std::make_unique<CpuDevice>(2)); };
  const auto open_gpu = []() -> std::unique_ptr<Device> {
    const auto count = CudaDevice::Count();
    if (!count.ok() || *count == 0) return nullptr;
    auto device = CudaDevice::Open(0);
    if (!device.ok()) std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return device.ok() ? *std::move(device) : nullptr;
  };
  return {{"cpu", open_cpu}, {"cuda", open_gpu}};
}

}  // namespace warpcall::testing
