// The conditions under which a device works, at one moment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace warpcall {

// Unknown values are 0 or empty.
struct DeviceConditions {
  int32_t sm_clock_mhz = 0;
  int32_t default_sm_clock_mhz = 0;  // the clock under load when nothing throttles it
  int32_t memory_clock_mhz = 0;
  int32_t temperature_celsius = 0;
  double power_watts = 0;
  double energy_joules = 0;  // since the driver was loaded
  std::vector<std::string> throttle_reasons;  // reasons for lower clocks: "power cap"
  std::string driver;                         // its version
};

// Used by one thread.
class ConditionReader {
 public:
  virtual ~ConditionReader() = default;
  // Takes less than a millisecond.
  virtual DeviceConditions Read() = 0;
};

}  // namespace warpcall
