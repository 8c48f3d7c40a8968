// Profiles one request on the host and the device, run through an engine of its own, lane and all;
// or its kernel alone on device memory.
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
  // The names of a graph's steps, in their order; empty: no graph.
  std::vector<std::string> step_names;
  // Each input's bytes, which outlive the run. Empty: made from `seed`, as Benchmark's are.
  std::vector<InputPieces> inputs;
  // By input: it is on the device before a request comes. Empty: none is.
  std::vector<bool> stays;
  uint64_t seed = 0;
  // True: the whole path of a request, copies and rounds included. False: the kernel runs uncut on
  // inputs made from `seed` that lie in device memory, each time on the next of several sets of
  // operands.
  bool request_path = true;
  int iterations = 3;
  // Time for the runs before the watched ones, and again for the watched ones, of which there is
  // always one.
  int64_t runs_ns_max = 10'000'000'000;
  bool trace = false;
  // Labels the request in the trace.
  std::string request_id;
  std::string traceparent;  // may be empty
};

// The kinds of rows. The host's are phases; threads of the CPU device, with the time that each ran
// and waited; and counters, whose `calls` is the number of counted events.
inline constexpr char kKernelRow[] = "kernel";
inline constexpr char kCopyRow[] = "copy";
inline constexpr char kSetRow[] = "set";
inline constexpr char kGapRow[] = "gap";
inline constexpr char kHostRow[] = "host";
inline constexpr char kThreadRow[] = "thread";
inline constexpr char kCounterRow[] = "counter";

// The host's row of whole runs, each from its submission until it was done.
inline constexpr char kRunRow[] = "run";
// The time that the CPU device's threads waited for a core, all together.
inline constexpr char kWaitingRow[] = "waiting for a core";

// Upper bound of RunProfile's memory for the operands of `problem`, on the host or a device. The
// row's workspace comes on top.
int64_t ProfileBytes(const Problem& problem, bool request_path);

// Runs the request, or the kernel, a few times to warm up, once for the counters, and `iterations`
// times for the rest, or as often as time permits: see the response. The counters get a large
// request's first round only, as they run a kernel many times and restore all memory between. If
// the device's activities can't be watched, the response has only the host's rows.
absl::StatusOr<v1::ProfileResponse> RunProfile(const Registry& registry,
                                               std::unique_ptr<Device> device,
                                               const ProfilePlan& plan);

}  // namespace warpcall::inspect
