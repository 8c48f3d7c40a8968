// What this process made of the machine's cores between two moments: how long each of its threads
// ran and waited, and what the system and the hardware counted for all of them.
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
  int64_t waiting_ns = 0;  // until a core was free; 0 where the system does not tell
};

struct HostCount {
  const char* name = "";
  int64_t count = 0;
  int64_t bytes = 0;  // that it stands for; 0: for none
};

struct HostActivity {
  std::vector<ThreadTime> threads;  // those that ran at all, the oldest first
  std::vector<HostCount> counts;
  // Which counters of the hardware are missing and why; empty when none is.
  std::string counters_unavailable;
};

// Where a HostMeter gets its counters from; tests bring their own.
struct PerfEvents {
  // As perf_event_open: a descriptor, or -1 and errno. Of `thread`, on any core.
  int (*open)(const perf_event_attr& attributes, pid_t thread);
  // The file that says what the system permits.
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
