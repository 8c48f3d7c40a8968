// The C++ client of a Warpcall server.
//
//   warpcall::client::Client client("127.0.0.1:8470");
//   auto result = client.Gelu(Tensor::FromFloats({2, 3}, values));
//   if (!result.ok()) ...   // the server's code and message
//   result->outputs[0].ToFloats(), result->timing.kernel_ns
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/common/data_type.h"
#include "warpcall/call.h"
#include "warpcall/credentials.h"
#include "warpcall/inspect.h"
#include "warpcall/retry.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

struct ClientOptions {
  RetryOptions retry = {};
  // The timeout of calls that set none.
  absl::Duration timeout = absl::InfiniteDuration();
  // A connection on which the server's machine takes in nothing of what was sent for this long is
  // given up, and its calls end. gRPC cannot end a call while bytes of it are stuck in the
  // connection, so a call whose server stops reading half-way may outlast its deadline by this
  // much.
  absl::Duration stall_timeout = absl::Seconds(20);
  // 1 to 64. One connection is one core's work on either side: with several, small calls take them
  // in turn, and Execute spreads a large call over them where the kernel's problems have
  // independent parts (Result::stripes).
  int connections = 1;
  // Bytes of tensor data in one message of ExecuteStream: 256 bytes to 4 MiB less 1 KiB, in whole
  // multiples of 256 (what exceeds one is not used).
  int64_t chunk_bytes = int64_t{1} << 20;
  Credentials credentials = {};
  // Waits between the attempts of a call; by default absl::SleepFor.
  std::function<void(absl::Duration)> sleep = nullptr;
  // Called for each attempt of a call after it ended, on the thread that made it.
  std::function<void(const Attempt&)> observe = nullptr;
  // Called with the number of calls queued ahead (1 or more) while a Benchmark, Tune, Profile or
  // Describe waits for its turn. Runs on one of the call's threads. Servers that report no position
  // never trigger it.
  std::function<void(int ahead)> queued = nullptr;
};

// A call whose tensors need not be in memory, for ExecuteStream. `read` and the other two are
// called from two threads, possibly at the same time; each in itself only one call after the other.
// The first that does not return OK ends the call with its status.
struct StreamCall {
  std::string kernel;
  std::vector<TensorSpec> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  CallOptions options = {};
  // Fills `into` with the bytes of an input from `offset` on. Offsets of each input ascend; inputs
  // take turns, so that about the same share of each has been read at any time.
  std::function<absl::Status(size_t input, int64_t offset, absl::Span<char> into)> read = nullptr;
  // The outputs to come, once, before the first of them is written. May be null.
  std::function<absl::Status(absl::Span<const TensorSpec> outputs)> begin = nullptr;
  // Takes bytes of an output, in pieces of any size and order, each byte once.
  std::function<absl::Status(size_t output, int64_t offset, absl::Span<const char> bytes)> write =
      nullptr;
};

// Durations of one request's phases, measured by the server, in nanoseconds.
struct Timing {
  int64_t queue_ns = 0;
  int64_t copy_in_ns = 0;
  int64_t h2d_ns = 0;
  int64_t kernel_ns = 0;
  int64_t d2h_ns = 0;
  int64_t total_ns = 0;
};

struct Result {
  std::vector<Tensor> outputs;
  std::string implementation;
  std::string device;
  Timing timing;
  LaunchInfo launch;
  std::string request_id;
  // The time from the call to its return, retries and their pauses included.
  absl::Duration wall;
  int attempts = 1;
  // Number of calls that this call was split into. If several: `implementation`, `device`,
  // occupancy and waves are the first stripe's; the phases of `timing` and the amounts of `launch`
  // are sums over all devices; total_ns and `attempts` are maxima; `request_id` is the caller's, or
  // the one that the server gave to the first stripe.
  int stripes = 1;
};

struct AttributeInfo {
  std::string name;
  std::string summary;
  AttributeValue default_value;
  std::vector<std::string> allowed_values;  // empty: all of the type
  bool required = false;                    // default_value is only there for its type
};

struct ImplementationInfo {
  std::string name;
  std::string family;
  std::string device_kind;
  std::string summary;
  std::vector<DataType> data_types;
  std::string unavailable;            // why the server's machine can't run it; empty when it can
  std::vector<std::string> variants;  // in order of preference; "NAME:VARIANT" asks for one
};

// Says which parts of a kernel's problems are independent of each other.
enum class Independence : uint8_t {
  kNone = 0,        // the problem is one piece
  kElements = 1,    // each element is a part; all inputs and outputs have one shape
  kBeforeAxis = 2,  // a part for each index of the dimensions before the attribute "axis"; shapes
                    // as for kElements
  kRows = 3,  // a part for each index of the first input's dimensions but the last; other split
              // inputs, and outputs, share these and have their own last dimension
  kBroadcastRows = 4,  // as kRows, by the output's dimensions: inputs that have all but the last
                       // are split, those of one row are shared; with other inputs, or "dropout" in
                       // the attribute "expression", the problem is one piece
  kProductRows =
      5,  // matrices: rows of the first, which share the second if that is one matrix
          // and "transpose_a" is false; products of a batch that both have; else one piece
};

// The portion of an input that each part of a problem reads.
enum class OperandRole : uint8_t {
  kSplit = 0,   // a piece of its own
  kShared = 1,  // all of the input, as every other part
};

struct KernelInfo {
  std::string name;
  std::string summary;
  std::vector<std::string> input_names;
  std::vector<AttributeInfo> attributes;
  std::vector<ImplementationInfo> implementations;  // in the order in which the server prefers them
  Independence independence = Independence::kNone;
  std::vector<OperandRole> input_roles;  // inputs beyond the list are split
  // If not 0: the kernel's attributes set the number of inputs, at least this many of input_names.
  int inputs_min = 0;
};

struct DeviceInfo {
  std::string name;
  std::string kind;
  std::string description;
  int64_t memory_bytes = 0;
  int32_t multiprocessors = 0;
  int64_t l2_bytes = 0;
  int64_t shared_memory_per_block_bytes = 0;
  std::string compute_capability;
  bool healthy = false;
  double measured_bandwidth_bytes_per_second = 0;  // 0 until measured
};

// Identity of the server, its start time and its flags.
struct ServerDescription {
  std::string version;
  std::string revision;  // source revision of the build; empty when not built from a checkout
  std::string grpc_version;
  absl::Time started;
  std::map<std::string, std::string> changed_flags;  // flags that differ from their defaults
  std::string hostname;
};

struct MatmulAttributes {
  bool transpose_a = false;
  bool transpose_b = false;
  std::string precision = "ieee";  // or "tf32", float32 only
};

// grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class ServingStatus : uint8_t {
  kUnknown = 0,
  kServing = 1,
  kNotServing = 2,
  kServiceUnknown = 3
};
// "SERVING", ...
const char* ServingStatusName(ServingStatus status);

// Checks that a Client can be made with this address, without calling anything. INVALID_ARGUMENT
// for a malformed address or a port out of range.
absl::Status CheckAddress(absl::string_view address);

// The connections to one server. Thread-safe; calls block the thread that makes them, and that
// thread itself waits on the socket; calls cut into stripes get threads of the client to help.
// Errors are the server's, code and message unchanged; UNAVAILABLE and DEADLINE_EXCEEDED also come
// from the connection, INTERNAL from here when a response contradicts itself, and INVALID_ARGUMENT
// when the address is none or a ClientOptions is out of its range.
class Client {
 public:
  // `address` is host, host:port (default port 8470), unix:/path, or another gRPC target that
  // begins with a scheme. With several servers, ipv4:ADDRESS:PORT,ADDRESS:PORT or dns:///NAME:PORT,
  // calls rotate over the servers that report SERVING, or over all while none does. Returns at
  // once: the first call connects.
  explicit Client(absl::string_view address, ClientOptions options = {});
  // No call is running. Up to 10 s, gRPC's own polling cycle, when a connection has just stalled.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // With several connections and 2 MiB of inputs or more, in stripes where the kernel allows it:
  // for that the client asks ListKernels once. The first stripe that fails ends the call with its
  // status; each is retried by itself.
  absl::StatusOr<Result> Execute(const Call& call);

  // Execute for tensors of any size, which a message (2 GiB at most on the server's side) need not
  // hold: they travel in chunks, and results come back while inputs are still on their way. A call
  // that found no server is tried again; once a byte of it has been sent or received, never.
  absl::StatusOr<Result> ExecuteStream(const Call& call);
  // Streams from and to the caller's callbacks, as above; Result::outputs stays empty.
  absl::StatusOr<Result> ExecuteStream(const StreamCall& call);

  // The kernels of the public contract. One output each, of the first input's type.
  absl::StatusOr<Result> Identity(Tensor x, CallOptions options = {});
  // `approximate`: "tanh" or "none".
  absl::StatusOr<Result> Gelu(Tensor x, absl::string_view approximate = "tanh",
                              CallOptions options = {});
  absl::StatusOr<Result> Softmax(Tensor x, int64_t axis = -1, CallOptions options = {});
  // a[..., m, k] x b[..., k, n] -> c[..., m, n]; leading dimensions broadcast as numpy.matmul.
  absl::StatusOr<Result> Matmul(Tensor a, Tensor b, const MatmulAttributes& attributes = {},
                                CallOptions options = {});

  // `timeout` zero: ClientOptions::timeout.
  absl::StatusOr<std::vector<KernelInfo>> ListKernels(absl::Duration timeout = {});
  absl::StatusOr<std::vector<DeviceInfo>> ListDevices(absl::Duration timeout = {});
  absl::StatusOr<ServerDescription> ServerInfo(absl::Duration timeout = {});
  // Times implementations of one problem on a device, without transfers: for comparing them. A row
  // that did not run says why in its result; an error is of the whole call.
  absl::StatusOr<BenchmarkReport> Benchmark(const BenchmarkCall& call);
  // Runs Benchmark and reports progress. `report` collects the responses, and keeps them when the
  // call fails. A call is retried only before its first response. A server without BenchmarkStream
  // gets a Benchmark call, whose results arrive all at once.
  absl::Status BenchmarkStream(const BenchmarkCall& call, const BenchmarkWatch& watch,
                               BenchmarkReport* report);
  // Benchmark, and from then on the server runs calls that name no implementation, or a family, by
  // the fastest row whose result was right, for problems of this class: of about these sizes, and
  // of these types and attributes.
  // `cancellation` ends the call from another thread; may be null.
  absl::StatusOr<BenchmarkReport> Tune(const BenchmarkCall& call,
                                       Cancellation* cancellation = nullptr);
  // Runs one call under the server's profiler: what the device did, and a trace if asked for. The
  // outputs are not returned, and the call is never cut into stripes.
  absl::StatusOr<ProfileReport> Profile(const ProfileCall& call);
  // Returns the implementation that would run for a problem, how and why, without running it.
  absl::StatusOr<Description> Describe(const DescribeCall& call);
  // Returns the grpc.health.v1 status of `service`; "" is the whole server. Never retried.
  // NOT_FOUND: no such service.
  absl::StatusOr<ServingStatus> Health(absl::string_view service = "", absl::Duration timeout = {});

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall::client
