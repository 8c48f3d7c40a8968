// What one request makes the host and the device do, run through an engine of its own, lane and
// all; or what its kernel alone does on device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/engine/job.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

struct ProfilePlan {
  const Kernel* kernel = nullptr;
  const Row* row = nullptr;
  Problem problem;
  // Each input's bytes, which outlive the run. Empty: made from `seed`, as Benchmark's are.
  std::vector<InputPieces> inputs;
  uint64_t seed = 0;
  // The whole path of a request, copies and rounds included. Otherwise the kernel runs uncut on
  // inputs made from `seed` that lie in device memory, each time on the next of several sets of
  // operands.
  bool request_path = true;
  int iterations = 3;
  // For the runs before those that are watched, and for those again; of the latter there is always
  // one.
  int64_t runs_ns_max = 10'000'000'000;
  bool trace = false;
  // Say in the trace which request this was.
  std::string request_id;
  std::string traceparent;  // may be empty
};

struct ProfileRow {
  // Of the host: phases; threads of the CPU device, how long each ran and waited; counters, whose
  // `calls` are how often what they count happened.
  enum class Kind : uint8_t { kKernel, kCopy, kSet, kGap, kHost, kThread, kCounter };

  Kind kind = Kind::kKernel;
  std::string name;
  int64_t calls = 0;
  int64_t total_ns = 0;
  // Of the device's time, from its first to its last activity, of all runs; of a thread, of the
  // runs' whole time.
  double fraction = 0;
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;
  std::string grid;   // "132x1x1"; empty where there is none
  std::string block;  // likewise
  int64_t bytes = 0;
  // Shares of the peak; -1: not known.
  double achieved_occupancy = -1;
  double sm_throughput = -1;
  double dram_throughput = -1;
};
const char* KindName(ProfileRow::Kind kind);  // "kernel", "copy", ...

// The host's row of whole runs, each from when it was submitted until it was done.
inline constexpr char kRunRow[] = "run";
// What the CPU device's threads waited together until a core was free.
inline constexpr char kWaitingRow[] = "waiting for a core";

struct ProfileReport {
  std::vector<ProfileRow> rows;  // longest total first
  std::string trace_json;        // Chrome's trace event format
  int iterations = 0;            // that were watched: fewer than the plan's when time was up
  // Why there are no shares of a peak, and of the CPU which counters are missing. Where not even
  // the device's activities could be watched there are only the host's rows.
  std::string counters_unavailable;
  std::string inconclusive;  // WhyInconclusive
};

// Memory that RunProfile takes for the operands of `problem` at most, on the host or a device;
// beside it the row's workspace.
int64_t ProfileBytes(const Problem& problem, bool request_path);

// Runs the request, or the kernel, a few times to warm up, once for the counters (of a large
// request its first round, since counting runs a kernel many times and restores all memory between)
// and `iterations` times for the rest, or as often as there is time for.
absl::StatusOr<ProfileReport> RunProfile(const Registry& registry, std::unique_ptr<Device> device,
                                         const ProfilePlan& plan);

}  // namespace warpcall::inspect
