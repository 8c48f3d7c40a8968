// From what was watched to the rows and the trace that people read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/inspect/host_meter.h"
#include "server/inspect/phase_recorder.h"
#include "server/inspect/profile.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// One run, by MonotonicNs.
struct ProfiledRun {
  uint64_t request = 0;
  int64_t submitted_ns = 0;
  int64_t queue_ns = -1;  // -1: it passed no queue
  int64_t done_ns = 0;
};

struct Watched {
  std::vector<ProfiledRun> runs;
  std::vector<DeviceActivity> activities;  // by start
  std::vector<RecordedPhase> phases;
  std::vector<KernelCounters> counters;  // of one run; empty: not known
  HostActivity host;                     // of the CPU device, whose threads do the work
  // For which threads of this process were ready to run, and others did, or the hypervisor had
  // their cores; all threads together.
  int64_t others_ns = 0;
};

// Why the runs' times do not tell what the kernel takes; empty: they do. "other work took 88 % of
// the threads' time" where that is more than kOtherWorkShareMax: of the time that a CPU's threads
// were ready to run; of the runs' time where a GPU works and the host only starts it.
std::string WhyInconclusive(const Watched& watched);

// "132x1x1"; empty where there is none.
std::string Extent(const uint32_t (&extent)[3]);

using ProfileRows = google::protobuf::RepeatedPtrField<v1::ProfileRow>;

// One row for each thing that the runs did, longest total first.
ProfileRows RowsOf(const Watched& watched);

struct TraceLabels {
  std::string device;
  std::string kernel;
  std::string implementation;
  std::string request_id;
  std::string traceparent;
};

// Chrome's trace event format: a process for the host with its threads, one for the device with its
// streams. Times in microseconds since the first run was submitted.
std::string ChromeTrace(const Watched& watched, const TraceLabels& labels);

}  // namespace warpcall::inspect
