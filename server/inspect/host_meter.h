// Measures this process's use of the cores between two moments: the time that each thread ran and
// waited, and the counts of the system and the hardware for all of them.
#pragma once

#include <linux/perf_event.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace warpcall::inspect {

struct ThreadTime {
  int64_t running_ns = 0;
  int64_t waiting_ns = 0;  // until a core was free; 0 if unknown
};

struct HostCount {
  const char* name = "";
  int64_t count = 0;
  int64_t bytes = 0;  // moved by these events; 0: not known for this event
};

struct HostActivity {
  std::vector<ThreadTime> threads;  // only threads that ran, the oldest first
  std::vector<HostCount> counts;
  // Names the missing hardware counters and the reason; empty when none is missing.
  std::string counters_unavailable;
};

// The source of a HostMeter's counters; tests bring their own.
struct PerfEvents {
  // Like perf_event_open: a descriptor, or -1 and errno. Counts `thread`, on any core.
  int (*open)(const perf_event_attr& attributes, pid_t thread);
  // The file with the system's permission level.
  const char* paranoid_path;

  static PerfEvents OfSystem();
};

// Meters from its construction until Stop. Threads that start in between are metered too. Used by
// one thread.
class HostMeter {
 public:
  explicit HostMeter(const PerfEvents& events = PerfEvents::OfSystem());
  ~HostMeter();
  HostMeter(const HostMeter&) = delete;
  HostMeter& operator=(const HostMeter&) = delete;

  // Called once.
  HostActivity Stop();

 private:
  struct Counter {
    int event;  // its place in the list of events
    int file;
  };

  void OpenCounters(const PerfEvents& events, const std::vector<pid_t>& threads);
  void AddHardwareCounts(HostActivity* activity) const;

  std::vector<Counter> counters_;
  std::string counters_unavailable_;
  std::map<pid_t, ThreadTime> begun_;
  int64_t page_faults_ = 0;
  int64_t context_switches_ = 0;
};

}  // namespace warpcall::inspect
