// Contents of a call to the server, and the types that calls of several kinds share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "warpcall/cancellation.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

using AttributeValue = std::variant<bool, int64_t, double, std::string>;

struct CallOptions {
  // A row or a family of ListKernels; empty: the server chooses.
  std::string implementation = {};
  // A name from ListDevices; empty: the server chooses.
  std::string device = {};
  // Comes back in the result and stands in the server's log; empty: the server makes one up.
  std::string request_id = {};
  // For the whole call, retries included; zero: ClientOptions::timeout.
  absl::Duration timeout = absl::ZeroDuration();
  // The caller's place in a trace, by W3C's rules: 00-, 32 digits, -, 16 digits, -, 2 digits, all
  // hexadecimal and lower-case. Empty: there is none.
  std::string traceparent = {};
  // Ends the call from another thread. May be null; of Execute and ExecuteStream.
  Cancellation* cancellation = nullptr;
};

// Caller's memory for an output of this type and shape.
struct Destination {
  TensorSpec spec;
  absl::Span<char> data;
};

struct Call {
  std::string kernel;
  std::vector<Tensor> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  CallOptions options = {};
  // Where the first outputs are written, in order; the others get memory of their own. A result
  // that does not fit ends the call with INVALID_ARGUMENT; of one that fails parts may have been
  // written. The caller keeps it alive for as long as the result's outputs, which refer to it.
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

struct LaunchInfo {
  int64_t bytes_moved = 0;
  int64_t flops = 0;
  double theoretical_occupancy = 0;  // 0 to 1
  double waves = 0;
  int32_t gpu_kernels = 0;
  std::string variant;  // variant of the implementation that ran: "two_pass"
};

}  // namespace warpcall::client
