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
#include "warpcall/v1/warpcall.pb.h"

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

// The kinds of rows. The host's are phases; threads of the CPU device, how long each ran and
// waited; and counters, whose `calls` are how often the counted event happened.
inline constexpr char kKernelRow[] = "kernel";
inline constexpr char kCopyRow[] = "copy";
inline constexpr char kSetRow[] = "set";
inline constexpr char kGapRow[] = "gap";
inline constexpr char kHostRow[] = "host";
inline constexpr char kThreadRow[] = "thread";
inline constexpr char kCounterRow[] = "counter";

// The host's row of whole runs, each from when it was submitted until it was done.
inline constexpr char kRunRow[] = "run";
// What the CPU device's threads waited together until a core was free.
inline constexpr char kWaitingRow[] = "waiting for a core";

// Memory that RunProfile takes for the operands of `problem` at most, on the host or a device;
// beside it the row's workspace.
int64_t ProfileBytes(const Problem& problem, bool request_path);

// Runs the request, or the kernel, a few times to warm up, once for the counters (of a large
// request its first round, since counting runs a kernel many times and restores all memory between)
// and `iterations` times for the rest, or as often as there is time for: the response says how
// often. Where not even the device's activities could be watched it has only the host's rows.
absl::StatusOr<v1::ProfileResponse> RunProfile(const Registry& registry,
                                               std::unique_ptr<Device> device,
                                               const ProfilePlan& plan);

}  // namespace warpcall::inspect
