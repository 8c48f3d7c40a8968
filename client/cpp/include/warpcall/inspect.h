// Calls that say what runs, how fast it is and what the device does for it, and their answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "warpcall/call.h"
#include "warpcall/cancellation.h"
#include "warpcall/tensor.h"
#include "warpcall/v1/warpcall.pb.h"

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

// The answers are the protocol's messages, whose fields warpcall.proto explains. A field is read by
// the function of its name: result.median_ns(). Times are of one launch, by the device's clock.
//
// Results of a BenchmarkStream have no verdicts while it goes on, or when it did not end well.
using BenchmarkReport = v1::BenchmarkResponse;
using BenchmarkResult = v1::BenchmarkResult;
using RunStamp = v1::RunStamp;  // started_unix_ns is 0 where the server sent none
using ProfileReport = v1::ProfileResponse;
using ProfileRow = v1::ProfileRow;
using Description = v1::DescribeResponse;
using SourceFile = v1::SourceFile;

// Callbacks and controls for a running benchmark.
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

}  // namespace warpcall::client
