// What the flags make of devices, lanes and threads.
#pragma once

#include <csignal>

#include "absl/time/time.h"
#include "server/config.h"
#include "server/devices.h"
#include "server/engine/engine.h"

namespace warpcall {

// Sent by a lane to this process: what it is there for is gone.
inline constexpr int kDevicesLost = SIGUSR1;

DeviceOptions ToDeviceOptions(const Config& config);
// Lanes send kDevicesLost when they are.
EngineOptions ToEngineOptions(const Config& config);
absl::Duration BusyPoll(const Config& config);

}  // namespace warpcall
