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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/common/data_type.h"
#include "warpcall/call.h"
#include "warpcall/graph.h"
#include "warpcall/inspect.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

// Credentials of a client, and the authorities by which it checks the server.
struct Credentials {
  // Encrypts connections, for a server that listens with TLS.
  bool tls = false;
  // PEM texts, for TLS. The authorities of servers to trust; empty: those that gRPC trusts, which
  // are the system's.
  std::string ca = {};
  // The client's own certificate with those between it and an authority, and its private key, for a
  // server that requires them; both or neither.
  std::string cert = {};
  std::string key = {};
  // Sent with every call, in clear text without TLS. Printable ASCII. Empty: none.
  std::string token = {};
};

// When a refused call is tried again. Follows gRPC's retry design (gRFC A6: capped exponential
// backoff, server pushback, a budget). Trying again is safe: no method of the service changes
// anything but Put and kept outputs, and what they leave is freed if their answer does not arrive.
struct RetryOptions {
  // Attempts of one call, the first included; 1: never try again.
  int attempts_max = 5;
  // The pause before attempt n + 1 is drawn from [0.8, 1.2] x min(backoff_max, backoff_initial x
  // 2^(n - 1)).
  absl::Duration backoff_initial = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
  // A server that demands a longer pause than this ends the call.
  absl::Duration pushback_max = absl::Minutes(1);
  // All calls of a client share a budget: a retry takes one token, a success gives
  // `budget_per_success` back, up to `budget_max`. So a server in trouble gets at most a tenth more
  // calls than it answers.
  double budget_max = 50;
  double budget_per_success = 0.1;
};

// The server's advice in the status of a refused call: the pause in milliseconds before another
// attempt; negative: this request will never fit. Nothing if the server gave none.
std::optional<int64_t> RetryPushbackMs(const absl::Status& status);

// A handle that a call was refused for.
struct LostHandle {
  std::string handle;
  std::string why;  // "freed", "expired", "evicted", "lost" with its device, or "unknown"
};
// The handles that NOT_FOUND is about; none for other statuses.
std::vector<LostHandle> LostHandles(const absl::Status& status);
// The id by which the server's log names a failed request that gave none; empty if the server told
// none.
std::string RequestIdOf(const absl::Status& status);

// Growing pauses between calls of a program that paces itself, as RetryOptions describes. For one
// thread.
class Backoff {
 public:
  // `options` outlive it.
  explicit Backoff(const RetryOptions& options) : options_(options) {}

  absl::Duration Next();
  // The next pause is a first one.
  void Reset() { pauses_ = 0; }

 private:
  const RetryOptions& options_;
  int pauses_ = 0;
};

// Values out of range end every call with INVALID_ARGUMENT.
struct ClientOptions {
  RetryOptions retry = {};
  // The timeout of calls that set none.
  absl::Duration timeout = absl::InfiniteDuration();
  // A connection on which the server's machine takes in nothing of what was sent for this long is
  // given up, and its calls end. gRPC cannot end a call while bytes of it are stuck in the
  // connection, so a call whose server stops reading half-way may outlast its deadline by this
  // much. Over zero.
  absl::Duration stall_timeout = absl::Seconds(20);
  // 1 to 64. One connection is one core's work on either side: with several, small calls take them
  // in turn, and Execute spreads a large call over them where the kernel's problems have
  // independent parts (Result::stripes).
  int connections = 1;
  // Bytes of tensor data in one message of ExecuteStream: 256 bytes to 4 MiB less 1 KiB, in whole
  // multiples of 256 (what exceeds one is not used).
  int64_t chunk_bytes = int64_t{1} << 20;
  Credentials credentials = {};
  // Sent with every call in the header `warpcall-session`; empty: none. A front of several servers
  // may send all calls of a session to one of them (deploy/haproxy/haproxy-replicas.cfg), so that
  // they find the tensors that stay there. At most 128 printable ASCII characters, no spaces.
  std::string session = {};
  // Called for the pause between the attempts of a call; null: absl::SleepFor.
  std::function<void(absl::Duration)> sleep = nullptr;
  // Called for each attempt of a call after it ended, on the thread that made it.
  std::function<void(const Attempt&)> observe = nullptr;
  // Called with the number of calls queued ahead (1 or more) while a Benchmark, Tune, Profile or
  // Describe waits for its turn. Runs on one of the call's threads. Servers that report no position
  // never trigger it.
  std::function<void(int ahead)> queued = nullptr;
};

// A call whose tensors need not be in memory, for ExecuteStream. Two threads call `read`, `begin`
// and `write`, possibly at the same time, but no callback runs twice at once. The first callback
// that does not return OK ends the call with its status.
struct StreamCall {
  std::string kernel;
  std::vector<TensorSpec> inputs = {};
  // Handles of inputs that are on the server, by position. An input with an empty handle, or beyond
  // the list, is read. Only an input that all parts of the problem share may have a handle.
  std::vector<std::string> handles = {};
  std::map<std::string, AttributeValue> attributes = {};
  CallOptions options = {};
  // Fills `into` with the bytes of an input from `offset` on, little-endian and row-major. Offsets
  // of each input ascend; inputs take turns, so that about the same share of each has been read at
  // any time. Required.
  std::function<absl::Status(size_t input, int64_t offset, absl::Span<char> into)> read = nullptr;
  // Called once with the types and shapes of the outputs, before any `write`. May be null.
  std::function<absl::Status(absl::Span<const TensorSpec> outputs)> begin = nullptr;
  // Called with the bytes of an output at `offset`, in pieces of any size and order, each byte
  // once. Required.
  std::function<absl::Status(size_t output, int64_t offset, absl::Span<const char> bytes)> write =
      nullptr;
};

struct Result {
  std::vector<Tensor> outputs;
  std::string implementation;
  std::string device;
  Timing timing;
  LaunchInfo launch;
  std::string request_id;
  // Bytes of inputs and outputs that did not travel, as they are on the device.
  int64_t resident_bytes = 0;
  // The time from the call to its return, retries and their pauses included.
  absl::Duration wall;
  int attempts = 1;
  // Number of calls that this call was split into. If several: `implementation`, `device`,
  // occupancy and waves are the first stripe's; the phases of `timing` and the amounts of `launch`
  // are sums over all devices; total_ns and `attempts` are maxima; `request_id` is the caller's, or
  // the one that the server gave to the first stripe.
  int stripes = 1;
};

struct PutOptions {
  // A name from ListDevices. Empty: the device of this client's last Put; for its first, the
  // server's choice. A request needs all its tensors on one device.
  std::string device = {};
  // For how long the tensor stays after its last use; zero: as long as the server's default.
  absl::Duration ttl = absl::ZeroDuration();
  // For people, in ListTensors; at most 256 bytes.
  std::string label = {};
  // SHA-256 of the bytes, 32 bytes, which the server checks; or empty. With a digest and a tensor
  // without bytes, Put is a question: NOT_FOUND unless the server has a tensor of the caller's with
  // this type, shape and digest.
  std::string sha256 = {};
  // The server may end the tensor when another needs the memory.
  bool evictable = false;
  // As in CallOptions.
  absl::Duration timeout = absl::ZeroDuration();
  Cancellation* cancellation = nullptr;
};

// A tensor that stays on a device of the server.
struct Resident {
  // An input for calls. If the server loses the tensor, as it expired, was evicted or went with its
  // device, Execute, ExecuteGraph, ExecuteStream of a Call, Profile, ProfileGraph and DescribeGraph
  // put it again once within their own time, and at most once a minute; but not if the bytes were
  // borrowed.
  Tensor tensor;
  std::string device;
  int64_t bytes = 0;
  absl::Time expires = absl::InfiniteFuture();  // if it is not used until then
  bool existed = false;  // the bytes were there already: they are held and counted once
};

// The server's facts about a tensor that stays.
struct TensorInfo {
  std::string handle;
  std::string label;
  std::string device;
  TensorSpec spec;
  int64_t bytes = 0;
  absl::Time created;
  absl::Time expires;
  int64_t uses = 0;  // by requests
  bool evictable = false;
};

struct FreeReport {
  int64_t bytes = 0;                 // of the freed tensors that no other handle names
  std::vector<std::string> unknown;  // handles that name nothing of the caller's
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
  std::vector<std::string> variants;  // in order of preference; "NAME:VARIANT" selects one
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
// thread itself waits on the socket; calls split into stripes use threads of the client too.
// Errors are the server's, code and message unchanged. UNAVAILABLE and DEADLINE_EXCEEDED also come
// from the connection. The client itself returns INTERNAL for a response that contradicts itself,
// RESOURCE_EXHAUSTED if there is no memory for an output, CANCELLED after Cancellation::Cancel, and
// INVALID_ARGUMENT for a malformed address or a ClientOptions out of range.
class Client {
 public:
  // `address` is host, host:port (default port 8470), unix:/path, or another gRPC target that
  // begins with a scheme. With several servers, ipv4:ADDRESS:PORT,ADDRESS:PORT or dns:///NAME:PORT,
  // calls rotate over the servers that report SERVING, or over all while none does. Returns at
  // once: the first call connects.
  explicit Client(absl::string_view address, ClientOptions options = {});
  // REQUIRES: no call is running. Takes up to 10 s, gRPC's own polling cycle, if a connection has
  // just stalled.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Runs a kernel. Bytes and shape of each input must fit each other: INVALID_ARGUMENT. With
  // several connections and 2 MiB of inputs or more, the call is split into stripes where the
  // kernel allows it, for which the client calls ListKernels once. Each stripe is retried by
  // itself; the first that fails ends the call with its status.
  absl::StatusOr<Result> Execute(const Call& call);

  // Execute for tensors of any size; one message holds at most 2 GiB on the server's side. Tensors
  // travel in chunks, and results come back while inputs are still on their way. A call that found
  // no server is retried; a call of which a byte has been sent or received never is.
  absl::StatusOr<Result> ExecuteStream(const Call& call);
  // Streams from and to the caller's callbacks, as above; Result::outputs stays empty.
  absl::StatusOr<Result> ExecuteStream(const StreamCall& call);

  // Runs several kernels on one device in one request. Intermediate results never leave the
  // device. The call is one message, however large, and is retried as Execute. INVALID_ARGUMENT
  // begins with what is wrong: step "NAME", input "NAME" or output "NAME". UNIMPLEMENTED: the
  // server is older than ExecuteGraph.
  absl::StatusOr<GraphResponse> ExecuteGraph(const GraphRequest& request);

  // Copies a tensor to a device, where it stays until it was not used for its time to live.
  // RESOURCE_EXHAUSTED: the device has no room for it. INVALID_ARGUMENT for an address that may be
  // several servers': a tensor is on one.
  absl::StatusOr<Resident> Put(const Tensor& tensor, const PutOptions& options = {});
  // Returns a tensor that is on a device. NOT_FOUND: it was freed, has ended or never was.
  absl::StatusOr<Tensor> Get(const std::string& handle, absl::Duration timeout = {});
  // Takes handles back; requests that run end as if nothing had happened. Unknown handles are no
  // error.
  absl::StatusOr<FreeReport> Free(absl::Span<const std::string> handles,
                                  absl::Duration timeout = {});
  // The caller's own, oldest first.
  absl::StatusOr<std::vector<TensorInfo>> ListTensors(absl::Duration timeout = {});

  // The kernels of the public contract. Each has one output of the first input's type, and of its
  // shape except for Matmul.
  absl::StatusOr<Result> Identity(Tensor x, CallOptions options = {});
  // `approximate`: "tanh" or "none".
  absl::StatusOr<Result> Gelu(Tensor x, absl::string_view approximate = "tanh",
                              CallOptions options = {});
  // Along `axis`; negative: counted from the last dimension.
  absl::StatusOr<Result> Softmax(Tensor x, int64_t axis = -1, CallOptions options = {});
  // a[..., m, k] x b[..., k, n] -> c[..., m, n]; leading dimensions broadcast as numpy.matmul.
  absl::StatusOr<Result> Matmul(Tensor a, Tensor b, const MatmulAttributes& attributes = {},
                                CallOptions options = {});

  // `timeout` zero: ClientOptions::timeout.
  absl::StatusOr<std::vector<KernelInfo>> ListKernels(absl::Duration timeout = {});
  absl::StatusOr<std::vector<DeviceInfo>> ListDevices(absl::Duration timeout = {});
  absl::StatusOr<ServerDescription> ServerInfo(absl::Duration timeout = {});
  // Compares implementations of one problem on a device, without transfers. The result of an
  // implementation that did not run gives the reason; an error concerns the whole call.
  absl::StatusOr<BenchmarkReport> Benchmark(const BenchmarkCall& call);
  // Runs Benchmark and reports progress. `report` collects the responses, and keeps them when the
  // call fails. A call is retried only before its first response. A server without BenchmarkStream
  // gets a Benchmark call, whose results arrive all at once.
  absl::Status BenchmarkStream(const BenchmarkCall& call, const BenchmarkWatch& watch,
                               BenchmarkReport* report);
  // Runs Benchmark. Afterwards calls that name no variant run the fastest one whose result was
  // right, for problems of this class: about these sizes, and these types and attributes.
  // `cancellation` ends the call from another thread; may be null.
  absl::StatusOr<BenchmarkReport> Tune(const BenchmarkCall& call,
                                       Cancellation* cancellation = nullptr);
  // Runs one call under the server's profiler and returns the device's work, and a trace if
  // ProfileCall::trace is set. The outputs are not returned, and the call is never split.
  absl::StatusOr<ProfileReport> Profile(const ProfileCall& call);
  // Likewise for a graph. Rows name the step that did the work, where the server knows it.
  // Errors as of ExecuteGraph.
  absl::StatusOr<ProfileReport> ProfileGraph(const ProfileGraphCall& call);
  // Returns the implementation that would run for a problem, how and why, without running it.
  absl::StatusOr<Description> Describe(const DescribeCall& call);
  // Likewise for each step of a graph, which does not run. Sends types, shapes and handles of the
  // inputs: their tensors need no data. Errors as of ExecuteGraph.
  absl::StatusOr<Description> DescribeGraph(const GraphRequest& graph);
  // Has the server compile, check and time a kernel of the caller's. Returns the verdict whatever
  // is wrong with manifest or code: its status says PASSED or what failed. A call of which an event
  // came is not tried again. UNIMPLEMENTED: the server is older than Push, or takes no pushes.
  absl::StatusOr<PushVerdict> Push(const PushCall& call, const PushWatch& watch = {});
  // Returns the grpc.health.v1 status of `service`; "" is the whole server. Never retried.
  // NOT_FOUND: no such service.
  absl::StatusOr<ServingStatus> Health(absl::string_view service = "", absl::Duration timeout = {});

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall::client
