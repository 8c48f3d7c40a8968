// Derives the options of devices, lanes and threads from the flags.
#pragma once

#include "absl/time/time.h"
#include "server/config.h"
#include "server/devices.h"
#include "server/engine/engine.h"
#include "server/signals.h"
#include "server/thread_limits.h"

namespace warpcall {

DeviceOptions ToDeviceOptions(const Config& config);
// Lanes send kDevicesLost when they are.
EngineOptions ToEngineOptions(const Config& config);
absl::Duration BusyPoll(const Config& config);
ThreadNeeds ToThreadNeeds(const Config& config);

}  // namespace warpcall
