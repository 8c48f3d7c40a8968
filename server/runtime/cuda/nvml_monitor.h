// Watches GPUs with NVML from a thread of its own, once a second.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "server/engine/gpu_reading.h"
#include "server/runtime/cuda/nvml_api.h"

namespace warpcall::nvml {

struct WatchedGpu {
  std::string name;        // "cuda:0"
  std::string pci_bus_id;  // "0000:19:00.0"
};

struct MonitorOptions {
  absl::Duration period = absl::Seconds(1);
  // Longest time that the destructor waits for a call of NVML to return.
  absl::Duration patience = absl::Seconds(1);
};

// Thread-safe. Only the monitor's thread calls NVML, also the first time, which takes up to a
// second. A call that hangs therefore delays no other thread: readings stay as they were, and the
// destructor detaches the thread after a time limit.
class Monitor {
 public:
  Monitor(const Api& api, const std::vector<WatchedGpu>& gpus, const MonitorOptions& options = {});
  ~Monitor();

  // The last of each GPU, in the order given to the constructor; without values until there are
  // any.
  std::vector<GpuReading> Readings() const;

 private:
  struct Shared;
  static void Watch(const std::shared_ptr<Shared>& shared);

  const MonitorOptions options_;
  const std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this
  std::thread thread_;
};

}  // namespace warpcall::nvml
