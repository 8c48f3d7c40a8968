// Calls that say what runs, how fast it is and what the device does for it, and their answers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/call.h"
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
  double fraction_of_ceiling =
      0;                      // bytes_per_second over BenchmarkReport::ceiling_bytes_per_second
  double relative_error = 0;  // |out - ref| / |ref| against a float64 reference
  LaunchInfo launch;
  std::string error;                   // why it did not run; empty when it did
  int64_t iterations = 0;              // samples: as asked for, or fewer when time was up
  int64_t launches_per_iteration = 0;  // that each sample times together and divides by
  int64_t checked_elements = 0;        // behind relative_error
};

struct BenchmarkReport {
  std::vector<BenchmarkResult> results;
  std::string device;
  double ceiling_bytes_per_second = 0;  // a copy in the same run, read plus written
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
  // "kernel", "copy", "set", "gap" (the device had nothing to do) or "host" (a phase on the host,
  // beside what the device does).
  std::string kind;
  int64_t calls = 0;
  int64_t total_ns = 0;
  double mean_ns = 0;
  double fraction = 0;  // of the device's time from first to last; of "host" none
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
  int32_t iterations = 0;
  std::string counters_unavailable;  // why there are none; empty when they could be read
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
