// Turns the watched activities into the rows and the trace that people read.
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
  int64_t queue_ns = -1;  // -1: no queue on its path
  int64_t done_ns = 0;
  std::vector<int32_t> step_kernels = {};  // GPU kernels of each step of a graph; empty: no graph
};

struct Watched {
  std::vector<ProfiledRun> runs;
  std::vector<DeviceActivity> activities;  // by start
  std::vector<RecordedPhase> phases;
  std::vector<KernelCounters> counters;  // from one run; empty: not known
  HostActivity host;                     // activity of the CPU device, whose threads do the work
  // Time during which threads of this process were ready to run while others ran, or while the
  // hypervisor had their cores; all threads together.
  int64_t others_ns = 0;
};

// The reason why the runs' times do not show the kernel's; empty: they do. "other work took 88 % of
// the threads' time" if that exceeds kOtherWorkShareMax: on a CPU, as a share of the time that the
// threads were ready to run; on a GPU, which the host only starts, of the runs' time.
std::string WhyInconclusive(const Watched& watched);

// "132x1x1"; empty if there is none.
std::string Extent(const uint32_t (&extent)[3]);

using ProfileRows = google::protobuf::RepeatedPtrField<v1::ProfileRow>;

// One row for each activity of the runs, longest total first.
ProfileRows RowsOf(const Watched& watched);

struct TraceLabels {
  std::string device;
  std::string kernel;
  std::string implementation;
  std::string request_id;
  std::string traceparent;
};

// Chrome's trace event format: a process for the host with its threads, one for the device with its
// streams. Times are microseconds since the first run was submitted.
std::string ChromeTrace(const Watched& watched, const TraceLabels& labels);

}  // namespace warpcall::inspect
