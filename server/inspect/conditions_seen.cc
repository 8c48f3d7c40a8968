#include "server/inspect/conditions_seen.h"

#include <algorithm>

namespace warpcall::inspect {

void ConditionsSeen::Note(const DeviceConditions& now) {
  if (now.sm_clock_mhz > 0)
    sm_clock_mhz_min =
        sm_clock_mhz_min == 0 ? now.sm_clock_mhz : std::min(sm_clock_mhz_min, now.sm_clock_mhz);
  sm_clock_mhz_max = std::max(sm_clock_mhz_max, now.sm_clock_mhz);
  memory_clock_mhz = std::max(memory_clock_mhz, now.memory_clock_mhz);
  temperature_celsius = std::max(temperature_celsius, now.temperature_celsius);
  power_watts = std::max(power_watts, now.power_watts);
  driver = now.driver;
  for (const std::string& reason : now.throttle_reasons)
    if (std::find(throttle_reasons.begin(), throttle_reasons.end(), reason) ==
        throttle_reasons.end())
      throttle_reasons.push_back(reason);
}

bool RunsSlowly(const DeviceConditions& now) {
  return now.sm_clock_mhz > 0 &&
         4 * int64_t{now.sm_clock_mhz} < 3 * int64_t{now.default_sm_clock_mhz};
}

}  // namespace warpcall::inspect
