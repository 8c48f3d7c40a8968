// The kinds of device that a build has, for tests that run on each.
#pragma once

#include <memory>
#include <vector>

#include "server/runtime/device.h"

namespace warpcall::testing {

struct KindOfDevice {
  const char* name;
  std::unique_ptr<Device> (*open)();  // null where this machine has none
};

std::vector<KindOfDevice> DeviceKinds();

}  // namespace warpcall::testing
