// Calls that say what runs, how fast it is and what the device does for it, and their answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/call.h"
#include "client/cpp/cancellation.h"
#include "client/cpp/tensor.h"

namespace warpcall::client {

struct BenchmarkCall {
  std::string kernel;
  std::vector<std::string> implementations = {};  // rows or families; empty: all that fit
  std::vector<TensorSpec> inputs = {};            // filled by the server, from `seed`
  std::map<std::string, AttributeValue> attributes = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  int32_t warmup_iterations = 0;  // 0: the server's default, 10
  int32_t iterations = 0;         // 0: the server's default, 100
  uint64_t seed = 0;
  // A row is measured until the relative standard error of its median is below this; 0: by
  // iterations alone.
  double max_noise = 0;
  // The longest time for one row; zero: the server's own limit.
  absl::Duration row_timeout = absl::ZeroDuration();
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

// What one implementation took. Times are of one launch, by the device's clock, in nanoseconds.
struct BenchmarkResult {
  std::string implementation;
  std::string family;
  double mean_ns = 0;
  double median_ns = 0;
  double min_ns = 0;
  double p90_ns = 0;
  double bytes_per_second = 0;
  double flops_per_second = 0;
  // bytes_per_second over BenchmarkReport::ceiling_bytes_per_second
  double fraction_of_ceiling = 0;
  double relative_error = 0;  // |out - ref| / |ref| against a float64 reference
  LaunchInfo launch;
  std::string error;                   // why it did not run; empty when it did
  int64_t iterations = 0;              // samples: as asked for, or fewer when time was up
  int64_t launches_per_iteration = 0;  // that each sample times together and divides by
  int64_t checked_elements = 0;        // behind relative_error
  double p10_ns = 0;
  // The 95 % confidence interval of the median; 0 from a server that knows none.
  double median_low_ns = 0;
  double median_high_ns = 0;
  // "fastest", "not distinguishable from the fastest" or "slower by N %"; empty when it did not run
  // or is unstable and not the fastest beyond doubt.
  std::string verdict;
  double max_error = 0;     // largest |out - ref| over the bound of its tolerance: right is <= 1
  double noise = 0;         // the relative standard error of the median
  bool unstable = false;    // too noisy, or of more than one speed: not to be ranked
  double predicted_ns = 0;  // of a row that was skipped as too slow; `error` says how to ask for it
};

// Where and under which conditions a benchmark ran. On the CPU device what is of a GPU is empty
// or 0.
struct RunStamp {
  std::string device_description = "";
  std::string driver = "";
  std::string cuda = "";
  std::string server_version = "";
  uint64_t seed = 0;
  int32_t sm_clock_mhz_min = 0;
  int32_t sm_clock_mhz_max = 0;
  int32_t memory_clock_mhz = 0;
  int32_t temperature_celsius = 0;
  double power_watts = 0;
  std::vector<std::string> throttle_reasons = {};  // seen during the run
  int64_t samples_dropped = 0;                     // taken below 75 % of the default clock
  int64_t started_unix_ns = 0;                     // 0: the server sent no stamp
};

struct BenchmarkReport {
  // While a BenchmarkStream goes on, and when it did not end well, without verdicts.
  std::vector<BenchmarkResult> results = {};
  std::string device = "";
  double ceiling_bytes_per_second = 0;  // a copy in the same run, read plus written
  // Multiply-adds in the same run in the inputs' type, FLOP/s; 0 where it does not apply.
  double flops_ceiling = 0;
  RunStamp stamp = {};
};

// What is done while a benchmark goes on.
struct BenchmarkWatch {
  // Called for each response, with all that has come so far. Not called again once it has not
  // returned OK: that ends the call with its status. May be null.
  std::function<absl::Status(const BenchmarkReport& so_far)> progress = nullptr;
  // Ends the call from another thread; may be null.
  Cancellation* cancellation = nullptr;
};

struct ProfileCall {
  Call call;
  int32_t iterations = 0;  // 0: the server's default, 3
  bool trace = false;
  // In place of call.inputs: filled by the server, from `seed`. The kernel then runs whole, on
  // device memory; with request_path as a request with such inputs would, copies and rounds
  // included, which is what happens with call.inputs.
  std::vector<TensorSpec> input_specs = {};
  uint64_t seed = 0;
  bool request_path = false;
};

struct ProfileRow {
  std::string name;
  // "kernel", "copy", "set", "gap" (the device had nothing to do), "host" (a phase on the host,
  // beside what the device does), and of the CPU device "thread" (how long one worked, or all
  // waited for a core) and "counter" (`calls` is how often what it counts happened, `bytes` what
  // that moved).
  std::string kind;
  int64_t calls = 0;
  int64_t total_ns = 0;
  double mean_ns = 0;
  // Of the device's time from first to last; of a "thread", of the runs'; of "host" none.
  double fraction = 0;
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;
  std::string grid;
  std::string block;
  // Shares, 0 to 1; -1 where the counters can't be read.
  double achieved_occupancy = -1;
  double sm_throughput = -1;
  double dram_throughput = -1;
  int64_t bytes = 0;  // that copies moved, all calls together
};

struct ProfileReport {
  std::vector<ProfileRow> rows;  // by total time, longest first
  std::string trace_json;        // Chrome trace event format; empty unless asked for
  std::string implementation;
  std::string device;
  int32_t iterations = 0;  // fewer than asked for when the server's time for a profile was up
  std::string counters_unavailable;  // why there are none; empty when they could be read
  // Why the times do not tell what the kernel takes ("other work took 88 % of the threads' time");
  // empty when they do. With a GPU: gaps and the host's copies, not its kernels' own times.
  std::string inconclusive;
};

struct DescribeCall {
  std::string kernel;
  std::string implementation = {};  // a row or a family; empty: the server chooses
  std::vector<TensorSpec> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

// What people can read of an implementation.
struct SourceFile {
  std::string name;
  std::string language;  // "cuda", "triton", "cpp", "ptx", "sass", "expression"
  std::string text;      // or a comment that says why there is none
};

// What runs for a problem. Of several GPU kernels, registers, memory, grid and block are those of
// the one that counts; 0 or empty where there is no grid.
struct Description {
  std::string implementation;
  std::string family;
  std::string device;
  LaunchInfo launch;
  int32_t registers_per_thread = 0;
  int64_t shared_memory_bytes = 0;  // per block
  int64_t local_memory_bytes = 0;   // per thread: spills
  int64_t workspace_bytes = 0;      // of device memory, beside the operands
  std::vector<SourceFile> files;
  std::string tolerance;       // the bound that the row's results are checked against
  std::string chosen_because;  // "order of preference", "named by the request"
  std::string grid;            // "132x1x1"
  std::string block;
};

}  // namespace warpcall::client
