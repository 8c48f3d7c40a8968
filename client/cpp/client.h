// The C++ client of a Warpcall server.
//
//   warpcall::client::Client client("127.0.0.1:8470");
//   auto result = client.Gelu(Tensor::FromFloats({2, 3}, values));
//   if (!result.ok()) ...   // the server's code and message
//   result->outputs[0], result->timing.kernel_ns
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/retry.h"
#include "client/cpp/tensor.h"
#include "kernels/common/data_type.h"

namespace warpcall::client {

using AttributeValue = std::variant<bool, int64_t, double, std::string>;

struct ClientOptions {
  RetryOptions retry = {};
  // Of calls that set none.
  absl::Duration timeout = absl::InfiniteDuration();
  // A connection on which the server's machine takes in nothing of what was sent for this long is
  // given up, and its calls end. gRPC cannot end a call while bytes of it are stuck in the
  // connection, so a call whose server stops reading half-way may outlast its deadline by this
  // much.
  absl::Duration stall_timeout = absl::Seconds(20);
  // How a call waits between attempts; by default absl::SleepFor.
  std::function<void(absl::Duration)> sleep = nullptr;
};

struct CallOptions {
  // A row or a family of ListKernels; empty: the server chooses.
  std::string implementation = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  // Comes back in the result and stands in the server's log; empty: the server makes one up.
  std::string request_id = {};
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
};

struct Call {
  std::string kernel;
  std::vector<Tensor> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  CallOptions options = {};
};

// Where the time of one request went, as the server saw it, in nanoseconds.
struct Timing {
  int64_t queue_ns = 0;
  int64_t copy_in_ns = 0;
  int64_t h2d_ns = 0;
  int64_t kernel_ns = 0;
  int64_t d2h_ns = 0;
  int64_t total_ns = 0;
};

struct LaunchInfo {
  int64_t bytes_moved = 0;
  int64_t flops = 0;
  double theoretical_occupancy = 0;  // 0 to 1
  double waves = 0;
  int32_t gpu_kernels = 0;
};

struct Result {
  std::vector<Tensor> outputs;
  std::string implementation;
  std::string device;
  Timing timing;
  LaunchInfo launch;
  std::string request_id;
  // From the call to its return, retries and their pauses included.
  absl::Duration wall;
  int attempts = 1;
};

struct AttributeInfo {
  std::string name;
  std::string summary;
  AttributeValue default_value;
  std::vector<std::string> allowed_values;  // empty: all of the type
};

struct ImplementationInfo {
  std::string name;
  std::string family;
  std::string device_kind;
  std::string summary;
  std::vector<DataType> data_types;
};

struct KernelInfo {
  std::string name;
  std::string summary;
  std::vector<std::string> input_names;
  std::vector<AttributeInfo> attributes;
  std::vector<ImplementationInfo> implementations;  // in the order in which the server prefers them
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

// One connection to one server. Thread-safe; calls block the thread that makes them, and that
// thread itself waits on the socket. Errors are the server's, code and message unchanged;
// UNAVAILABLE and DEADLINE_EXCEEDED also come from the connection, and INTERNAL from here when a
// response contradicts itself.
class Client {
 public:
  // `address` is what gRPC takes: host:port, unix:/path. Returns at once: the first call connects.
  explicit Client(absl::string_view address, ClientOptions options = {});
  // No call is running. Up to 10 s, gRPC's own polling cycle, when a connection has just stalled.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<Result> Execute(const Call& call);

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
  // What grpc.health.v1 says of `service`, "" being the whole server; never tried twice. NOT_FOUND:
  // no such service.
  absl::StatusOr<ServingStatus> Health(absl::string_view service = "", absl::Duration timeout = {});

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace warpcall::client
