#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace warpcall {

// What a GPU says of itself.
struct GpuReading {
  std::string device;
  std::optional<double> sm_active_ratio, sm_occupancy_ratio, dram_bandwidth_ratio,
      tensor_active_ratio, power_watts, temperature_celsius;
  std::map<int64_t, int64_t> xid_errors;
};  // what is absent is not known

}  // namespace warpcall
