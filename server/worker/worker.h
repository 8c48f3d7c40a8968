// The worker's side: serves one device to the process that started it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/registry.h"
#include "server/engine/metrics_sink.h"
#include "server/process/channel.h"
#include "server/runtime/device.h"

namespace warpcall::worker {

// The worker's ends of the sockets, and the files that both processes map.
struct Ends {
  const process::Channel* control = nullptr;
  int staging = -1;
  int mail = -1;  // the lanes' mailboxes
  std::vector<int> lanes;
};

struct Served {
  const Registry* registry;
  Device* device;
  // Prepares memory shared with the other process for the device's copies and kernels.
  std::function<absl::Status(void* data, size_t bytes)> pin;
  std::function<std::vector<DeviceErrorCount>()> errors;
};

// Reports the device's properties, maps staging, then runs requests, and frees tensors that stayed,
// until the other process closes the control socket.
absl::Status ServeDevice(const Ends& ends, const Served& served);

// Reports why there is no device.
void ReportFailure(const Ends& ends, const absl::Status& status);

}  // namespace warpcall::worker
