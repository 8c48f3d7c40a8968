// What a run saw of its device's conditions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/runtime/conditions.h"

namespace warpcall::inspect {

struct ConditionsSeen {
  int32_t sm_clock_mhz_min = 0;
  int32_t sm_clock_mhz_max = 0;
  // The largest values.
  int32_t memory_clock_mhz = 0;
  int32_t temperature_celsius = 0;
  double power_watts = 0;
  std::vector<std::string> throttle_reasons;  // all that were seen, once each
  std::string driver;

  void Note(const DeviceConditions& now);
};

// Whether a sample that was taken then tells of a clock that something holds down: below 75 % of
// the default.
bool RunsSlowly(const DeviceConditions& now);

}  // namespace warpcall::inspect
