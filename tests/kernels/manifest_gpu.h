// The GPU for which tests launch what manifests describe.
#pragma once

#include "kernels/device_properties.h"

namespace warpcall::testing {

inline DeviceProperties ManifestGpu() {
  DeviceProperties device;
  device.name = "cuda:0";
  device.multiprocessors = 132;
  device.shared_memory_per_block_bytes = 227 << 10;
  return device;
}

}  // namespace warpcall::testing
