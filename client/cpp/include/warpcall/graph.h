// Several kernels in one call: the request, and what comes back.
//
//   const auto result = client.ExecuteGraph(
//       {.inputs = {{"x", x}, {"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}},
//        .steps = {{.name = "h", .kernel = "linear", .inputs = {"x", "w1", "b1"},
//                   .attributes = {{"activation", "gelu"}}},
//                  {.name = "y", .kernel = "linear", .inputs = {"h", "w2", "b2"}}},
//        .outputs = {{.name = "y"}}});
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "warpcall/call.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

// Names of inputs and steps have 1 to 63 characters of [A-Za-z0-9_.-], the first a letter or "_",
// and differ from each other.
struct GraphInput {
  std::string name;
  Tensor tensor;
};

struct GraphStep {
  std::string name;
  std::string kernel;
  // As in CallOptions.
  std::string implementation = {};
  // Names of inputs or of earlier steps, in the kernel's order. One name may stand several times.
  std::vector<std::string> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
};

struct GraphOutput {
  // A step's name. No two outputs name the same step.
  std::string name;
  // Leaves the output on the device: it comes back as a tensor with a handle and no bytes.
  bool keep = false;
  // For how long a kept output stays after its last use; zero: as long as the server's default.
  absl::Duration ttl = absl::ZeroDuration();
  // Text for people, in ListTensors; at most 256 bytes. Only for a kept output.
  std::string label = {};
};

// At most 64 inputs and 256 steps. Every input and every step is used.
struct GraphRequest {
  std::vector<GraphInput> inputs = {};
  std::vector<GraphStep> steps = {};  // in the order in which they run
  std::vector<GraphOutput> outputs = {};
  // The next five as in CallOptions.
  std::string device = {};
  std::string request_id = {};
  absl::Duration timeout = absl::ZeroDuration();
  std::string traceparent = {};
  Cancellation* cancellation = nullptr;
  // Times each step separately, at a cost of a few microseconds per step.
  bool step_times = false;
};

struct GraphStepResult {
  std::string name;
  std::string implementation;  // the one that ran
  int64_t kernel_ns = 0;       // 0 without step_times
  LaunchInfo launch;
};

struct GraphResponse {
  std::vector<Tensor> outputs;         // in the order of the request's
  std::vector<GraphStepResult> steps;  // likewise
  std::string device;
  Timing timing;  // kernel_ns is the time of all steps together
  std::string request_id;
  // Bytes of inputs that were on the device and of outputs that stay there.
  int64_t resident_bytes = 0;
  // Device memory of the results that only later steps read.
  int64_t intermediate_bytes = 0;
  // The device replayed a recording of the whole graph.
  bool replayed = false;
  // The time from the call to its return, retries and their pauses included.
  absl::Duration wall;
  int attempts = 1;
};

}  // namespace warpcall::client
