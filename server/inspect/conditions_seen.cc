#include "server/inspect/conditions_seen.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace warpcall::inspect {

void AddConditions(const DeviceConditions& now, v1::RunStamp* stamp) {
  const int32_t least = stamp->sm_clock_mhz_min();
  if (now.sm_clock_mhz > 0)
    stamp->set_sm_clock_mhz_min(least == 0 ? now.sm_clock_mhz : std::min(least, now.sm_clock_mhz));
  stamp->set_sm_clock_mhz_max(std::max(stamp->sm_clock_mhz_max(), now.sm_clock_mhz));
  stamp->set_memory_clock_mhz(std::max(stamp->memory_clock_mhz(), now.memory_clock_mhz));
  stamp->set_temperature_celsius(std::max(stamp->temperature_celsius(), now.temperature_celsius));
  stamp->set_power_watts(std::max(stamp->power_watts(), now.power_watts));
  stamp->set_driver(now.driver);
  for (const std::string& reason : now.throttle_reasons)
    if (!absl::c_linear_search(stamp->throttle_reasons(), reason))
      stamp->add_throttle_reasons(reason);
}

bool RunsSlowly(const DeviceConditions& now) {
  return now.sm_clock_mhz > 0 &&
         4 * int64_t{now.sm_clock_mhz} < 3 * int64_t{now.default_sm_clock_mhz};
}

}  // namespace warpcall::inspect
