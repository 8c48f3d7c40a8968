// A call to the server: its kernel, operands and options, and the means to end it early.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "warpcall/tensor.h"

namespace grpc {
class ClientContext;
class CompletionQueue;
}  // namespace grpc

namespace warpcall::client {

// The most that one gRPC message can hold: its length is sent in 32 bits.
inline constexpr int64_t kMessageBytesMax = (int64_t{1} << 32) - 1;

// Ends calls from another thread. Thread-safe; outlives the calls that it is given to.
class Cancellation {
 public:
  Cancellation() = default;
  // Is also cancelled when `parent` is; `parent` may be null and outlives this object. Each thread
  // that waits for an answer, or pauses before a retry, calls `wanted` every 50 ms; false has the
  // effect of Cancel. For programs that can't call Cancel while they wait.
  explicit Cancellation(Cancellation* parent, std::function<bool()> wanted = nullptr);
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // Running calls end with CANCELLED unless they have just ended otherwise; later calls end with
  // CANCELLED at once.
  void Cancel();
  // Returns when cancelled, or after `timeout`.
  void WaitFor(absl::Duration timeout);
  // Waits for `condition` with `mutex` held. Returns false if `deadline` passed first, or within
  // 50 ms of a cancellation. `cancellation` may be null.
  static bool Await(Cancellation* cancellation, absl::Mutex* mutex,
                    const absl::Condition& condition, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  friend class Channel;
  friend class StreamLoop;
  void Add(grpc::ClientContext* call);
  void Remove(grpc::ClientContext* call);
  // The queue's own Next, for the event of a call.
  bool Next(grpc::CompletionQueue* queue, void** tag, bool* ok);

  // True if this object or a parent has `wanted`, which has to be polled.
  bool HasWanted() const {
    return wanted_ != nullptr || (parent_ != nullptr && parent_->HasWanted());
  }
  bool IsWanted() const;
  bool IsCancelled();

  Cancellation* const parent_ = nullptr;
  const std::function<bool()> wanted_;
  absl::Mutex mutex_;  // a parent's before its children's
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<Cancellation*> children_ ABSL_GUARDED_BY(mutex_);
};

using AttributeValue = std::variant<bool, int64_t, double, std::string>;

struct CallOptions {
  // An implementation of ListKernels ("cuda"), or one variant of it ("cuda:two_pass"); empty: the
  // server chooses.
  std::string implementation = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  // Appears in the result and in the server's log; empty: the server generates one.
  std::string request_id = {};
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
  // The caller's place in a trace, by W3C's rules: 00-, 32 digits, -, 16 digits, -, 2 digits, all
  // hexadecimal and lower-case; INVALID_ARGUMENT otherwise. Empty: no trace.
  std::string traceparent = {};
  // Leaves the outputs on the device: those of the result have handles and no bytes.
  bool keep_outputs = false;
  // For how long kept outputs stay after their last use; zero: as long as the server's default.
  absl::Duration keep_ttl = absl::ZeroDuration();
  // Ends an Execute or ExecuteStream from another thread. May be null; outlives the call.
  Cancellation* cancellation = nullptr;
};

// Caller's memory for an output of this type and shape; `data` has exactly ByteCount's bytes.
struct Destination {
  TensorSpec spec;
  absl::Span<char> data;
};

struct Call {
  std::string kernel;
  std::vector<Tensor> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  CallOptions options = {};
  // Memory for the first outputs, in order; the other outputs get memory of their own. A result
  // that does not fit ends the call with INVALID_ARGUMENT. A call that fails may have written a
  // part. The caller keeps the memory for as long as the result's outputs, which refer to it.
  std::vector<Destination> destinations = {};
};

// One attempt of a call, as it went over a connection.
struct Attempt {
  std::string server = {};  // the address
  std::string method = {};  // "Execute"
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  bool stream = false;  // then neither is counted
  absl::Duration time = absl::ZeroDuration();
  absl::Status status = absl::OkStatus();
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

// The device's work for a call.
struct LaunchInfo {
  int64_t bytes_moved = 0;  // least that the kernel must move: inputs read and outputs written once
  int64_t flops = 0;
  double theoretical_occupancy = 0;  // 0 to 1
  double waves = 0;                  // grid blocks divided by those that the device holds at once
  int32_t gpu_kernels = 0;           // launched
  std::string variant;               // variant of the implementation that ran: "two_pass"
};

}  // namespace warpcall::client
