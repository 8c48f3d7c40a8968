// Chooses among several devices of one kind: the next job goes to the one with the least predicted
// work on its books.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace warpcall {

class Balancer;

// Predicted work on a device's books, from the choice of the device until the end of the job that
// brought it. Move-only; must not outlive its balancer.
class DeviceLoad {
 public:
  DeviceLoad() = default;  // none
  DeviceLoad(DeviceLoad&& other) noexcept { *this = std::move(other); }
  DeviceLoad& operator=(DeviceLoad&& other) noexcept;
  ~DeviceLoad();

  int device() const { return device_; }  // -1: none

 private:
  friend class Balancer;
  DeviceLoad(Balancer* balancer, int device, int64_t ns)
      : balancer_(balancer), device_(device), ns_(ns) {}

  Balancer* balancer_ = nullptr;
  int device_ = -1;
  int64_t ns_ = 0;
};

// Thread-safe.
class Balancer {
 public:
  // Devices are numbered in the order in which they are added. `lanes` is the number of jobs that
  // the device runs at once. REQUIRES: nothing was chosen yet.
  void AddDevice(int lanes);

  // Chooses the one of `devices`, at least one, with the least work on its books. Among equals
  // (within 100 us) a device with a free lane comes first, then the one that got work longest ago.
  // Ended jobs leave no other trace: one job that was overestimated must not send the next thousand
  // elsewhere. Enters `ns` of predicted work on the books before it returns, so that the next
  // choice sees it.
  DeviceLoad Choose(absl::Span<const int> devices, int64_t ns);

  // For a job whose device is settled: enters work for `device`, in place of the load `chosen`,
  // which may be none.
  DeviceLoad Settle(DeviceLoad chosen, int device, int64_t ns);

  // Predicted work on the device's books.
  int64_t load_ns(int device) const;

 private:
  friend class DeviceLoad;
  struct Books {
    int lanes = 1;
    int jobs = 0;
    int64_t load_ns = 0;
    uint64_t last_turn = 0;  // when it last got work, in turns of all devices

    std::pair<bool, uint64_t> Rank() const { return {jobs >= lanes, last_turn}; }  // least first
  };

  DeviceLoad Enter(int device, int64_t ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(int device, int64_t ns);

  mutable absl::Mutex mutex_;
  std::vector<Books> devices_ ABSL_GUARDED_BY(mutex_);
  uint64_t turns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace warpcall
