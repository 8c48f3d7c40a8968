#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/runtime/device_kinds.h"

namespace warpcall::testing {

std::vector<KindOfDevice> DeviceKinds() {
  return {{"cpu", [] { return std::unique_ptr<Device>(std::make_unique<CpuDevice>(2)); }}};
}

}  // namespace warpcall::testing
