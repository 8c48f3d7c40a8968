// A fake NVML: two GPUs, whose values and failures the test sets. The functions take no argument of
// ours, so there is one at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "server/runtime/cuda/nvml_api.h"

namespace warpcall::testing {

class FakeNvml {
 public:
  static constexpr char kFirstBus[] = "0000:19:00.0";
  static constexpr char kSecondBus[] = "0000:9A:00.0";

  struct Gpu {
    nvml::Return uuid_result = nvml::kSuccess;
    std::string uuid;
    nvml::Return power_result = nvml::kSuccess;
    unsigned int power_milliwatts = 0;
    unsigned long long energy_millijoules = 0;
    nvml::Return temperature_result = nvml::kSuccess;
    unsigned int temperature_celsius = 0;
    unsigned int sm_clock_mhz = 0;
    unsigned int memory_clock_mhz = 0;
    unsigned int default_sm_clock_mhz = 0;
    unsigned long long throttle_reasons = 0;
    bool has_gpm = true;
    nvml::Return events_result = nvml::kSuccess;
    std::map<unsigned int, double> gpm_percent;        // by metric id
    std::map<unsigned int, nvml::Return> gpm_results;  // kSuccess where none is given
  };

  FakeNvml();
  ~FakeNvml();

  nvml::Api api() const;

  // All under `mutex`, since the monitor's thread reads it.
  absl::Mutex mutex;
  absl::CondVar changed;  // polls, sessions
  nvml::Return init_result ABSL_GUARDED_BY(mutex) = nvml::kSuccess;
  Gpu gpus[2] ABSL_GUARDED_BY(mutex);
  std::vector<nvml::EventData> events ABSL_GUARDED_BY(mutex);  // first come, first served
  int polls ABSL_GUARDED_BY(mutex) = 0;                        // readings of the first GPU's power
  int power_calls[2] ABSL_GUARDED_BY(mutex) = {0, 0};
  int samples_alive ABSL_GUARDED_BY(mutex) = 0;
  int sets_alive ABSL_GUARDED_BY(mutex) = 0;
  int sessions ABSL_GUARDED_BY(mutex) = 0;
  // GPM's samples in the order in which they were taken; which two were compared last.
  int samples_taken ABSL_GUARDED_BY(mutex) = 0;
  int compared_older ABSL_GUARDED_BY(mutex) = 0;
  int compared_newer ABSL_GUARDED_BY(mutex) = 0;
  // Reading the first GPU's power waits for this when it is set.
  absl::Notification* hang ABSL_GUARDED_BY(mutex) = nullptr;

  // Returns when a whole poll has begun and ended since the call.
  void AwaitPoll();
  nvml::EventData Xid(int gpu, unsigned long long number);
};

}  // namespace warpcall::testing
