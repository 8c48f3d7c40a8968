// The properties of a device, which its implementations may read.
#pragma once

#include <cstdint>
#include <string>

namespace warpcall {

enum class DeviceKind : uint8_t { kCpu, kCuda };

constexpr const char* DeviceKindName(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

struct DeviceProperties {
  std::string name;  // "cpu", "cuda:0"
  DeviceKind kind = DeviceKind::kCpu;
  std::string description;
  int64_t memory_bytes = 0;
  int32_t multiprocessors = 0;             // hardware threads on the CPU
  int32_t threads_per_multiprocessor = 0;  // resident at most; 0 on the CPU
  int64_t l2_bytes = 0;
  int64_t shared_memory_per_block_bytes = 0;
  // No kernel exceeds these: what the memory's pins carry, and dense multiply-adds in float16 at
  // the highest clock. 0: not known.
  double pin_bytes_per_second = 0;
  double float16_flops_per_second = 0;
  std::string compute_capability;  // "9.0"; empty on the CPU
  int32_t architecture = 0;        // 90 for compute capability 9.0; 0 on the CPU
  int32_t ordinal = 0;             // among the devices of its kind
  std::string pci_bus_id;          // "0000:19:00.0"; empty on the CPU
};

}  // namespace warpcall
