// Derives the options of devices, lanes and threads from the flags.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "server/engine/engine.h"
#include "server/flags/config.h"
#include "server/program/devices.h"
#include "server/system/signals.h"
#include "server/system/thread_limits.h"

namespace warpcall {

DeviceOptions ToDeviceOptions(const Config& config);
// Lanes send kDevicesLost when they are.
EngineOptions ToEngineOptions(const Config& config);
// Returns the folder of --cuda_include, or that of the toolkit of this build; empty: there is none.
std::string CudaInclude(const Config& config);
absl::Duration BusyPoll(const Config& config);
ThreadNeeds ToThreadNeeds(const Config& config);

}  // namespace warpcall
