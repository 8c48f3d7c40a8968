// The conditions of a device while a benchmark runs.
#pragma once

#include "server/runtime/conditions.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::inspect {

// Adds a reading to the stamp, which keeps the least and the largest SM clock, the largest of the
// other values, and each throttle reason once.
void AddConditions(const DeviceConditions& now, v1::RunStamp* stamp);

// True if the clock is held down, below 75 % of the default, so that a sample taken then is no
// good.
bool RunsSlowly(const DeviceConditions& now);

}  // namespace warpcall::inspect
