// Calls that inspect implementations (Benchmark, Tune, Profile, Describe), or a kernel of the
// caller's (Push), and their answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "warpcall/call.h"
#include "warpcall/graph.h"
#include "warpcall/tensor.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::client {

struct BenchmarkCall {
  std::string kernel;
  // "cuda", "cuda:two_pass" or "cuda:*" for all variants; empty: every implementation that fits.
  std::vector<std::string> implementations = {};
  std::vector<TensorSpec> inputs = {};  // filled by the server, from `seed`
  std::map<std::string, AttributeValue> attributes = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  int32_t warmup_iterations = 0;  // 0: the server's default, 10
  int32_t iterations = 0;         // 0: the server's default, 100
  uint64_t seed = 0;
  // An implementation is measured until the relative standard error of its median is below this;
  // 0: by iterations alone.
  double max_noise = 0;
  // The longest time for one implementation; zero: the server's own limit.
  absl::Duration row_timeout = absl::ZeroDuration();
  // "burst" or "settled", as BenchmarkRequest.method documents; empty: "burst".
  std::string method = {};
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

// The answers are the protocol's messages; warpcall.proto documents the fields. Each field has a
// function of its name: result.median_ns(). Times are of one launch, by the device's clock.
//
// Results of a BenchmarkStream have no verdicts before it has ended with OK.
using BenchmarkReport = v1::BenchmarkResponse;
using BenchmarkResult = v1::BenchmarkResult;
using RunStamp = v1::RunStamp;  // started_unix_ns is 0 if the server sent no stamp
using ProfileReport = v1::ProfileResponse;
using ProfileRow = v1::ProfileRow;
using Description = v1::DescribeResponse;
using DescribedStep = v1::DescribedStep;
using SourceFile = v1::SourceFile;
using PushEvent = v1::PushEvent;
using PushVerdict = v1::PushVerdict;

// Callbacks and controls for a running benchmark.
struct BenchmarkWatch {
  // Called after each response with all results so far. A status other than OK ends the call. May
  // be null.
  std::function<absl::Status(const BenchmarkReport& so_far)> progress = nullptr;
  // Ends the call from another thread; may be null.
  Cancellation* cancellation = nullptr;
};

struct ProfileCall {
  Call call;
  int32_t iterations = 0;  // 0: the server's default, 3
  bool trace = false;
  // In place of call.inputs: the server fills inputs of these types and shapes from `seed`. The
  // kernel then runs whole, on device memory. With request_path, as always with call.inputs, it
  // runs as a request does, copies and rounds included.
  std::vector<TensorSpec> input_specs = {};
  uint64_t seed = 0;
  bool request_path = false;
};

// A graph runs as ExecuteGraph runs it, copies included.
struct ProfileGraphCall {
  GraphRequest graph;      // outputs are neither returned nor kept
  int32_t iterations = 0;  // 0: the server's default, 3
  bool trace = false;
};

struct DescribeCall {
  std::string kernel;
  std::string implementation = {};  // as in CallOptions
  std::vector<TensorSpec> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

// The most code that a server takes for one Push.
inline constexpr int64_t kPushCodeBytesMax = int64_t{4} << 20;

struct PushProblem {
  std::vector<TensorSpec> inputs = {};
  // Attributes that neither this nor the manifest names have the op's defaults.
  std::map<std::string, AttributeValue> attributes = {};
};

// A kernel in CUDA C++, for the server to compile, check and time.
struct PushCall {
  std::string code;
  // The manifest, warpcall-kernel/1, in JSON; empty: it stands in the first comment of the code.
  std::string manifest_json = {};
  // Empty: the server draws problems from the manifest's examples and the op's own cases.
  std::vector<PushProblem> problems = {};
  uint64_t seed = 0;       // 0: the server draws one
  int32_t iterations = 0;  // 0: the server's default
  // Implementations to time for comparison; empty: the fastest vendor-library implementation and
  // the fastest of the server's own. "none": no others.
  std::vector<std::string> compare_with = {};
  bool check_only = false;  // does not time the kernel
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  bool fresh = false;       // judges the kernel even if the server has judged it before
  bool with_files = false;  // PushCompiled brings PTX and SASS
  // Limit from the call's arrival at the server to the verdict, with the wait in the queue, at most
  // 60 s; zero: none. The push then ends with DEADLINE_EXCEEDED. The server's own limit is 60 s
  // from when the push leaves the queue; it ends with the verdict TIMEOUT.
  absl::Duration judge_timeout = absl::ZeroDuration();
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

// Callbacks and controls for a running push.
struct PushWatch {
  // Called with each event as it comes, the verdict included, on one of the call's threads. Events
  // of kinds that this client does not know have none of the fields. A status other than OK ends
  // the call. May be null.
  std::function<absl::Status(const PushEvent& event)> event = nullptr;
  // Ends the call from another thread; may be null.
  Cancellation* cancellation = nullptr;
};

}  // namespace warpcall::client
