// Records a device's activity and its times, by CUPTI's activity records.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/runtime/cuda/cupti_api.h"
#include "server/runtime/device.h"

namespace warpcall::cupti {

// Limited to one at a time in a process: CUPTI's callbacks take no argument, so the records that
// they collect are the process's.
class Trace {
 public:
  // `device`: CUDA's ordinal. `api` outlives this.
  Trace(const Api& api, int device) : api_(api), device_(device) {}
  // Stops, too.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // FAILED_PRECONDITION when it is running.
  absl::Status Start();
  // Returns activities in order of start, and stops CUPTI. DATA_LOSS when some were not recorded.
  // REQUIRES: the device was synchronised.
  absl::StatusOr<std::vector<DeviceActivity>> Stop();

 private:
  void Disable();
  absl::Status PrepareClock();

  const Api& api_;
  const int device_;
  bool running_ = false;
  int64_t offset_ns_ = 0;  // from the records' clock to CLOCK_MONOTONIC
};

}  // namespace warpcall::cupti
