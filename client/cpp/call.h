// What a call to the server says, and what calls of several kinds share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/tensor.h"

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
};

struct Call {
  std::string kernel;
  std::vector<Tensor> inputs = {};
  std::map<std::string, AttributeValue> attributes = {};
  CallOptions options = {};
};

struct LaunchInfo {
  int64_t bytes_moved = 0;
  int64_t flops = 0;
  double theoretical_occupancy = 0;  // 0 to 1
  double waves = 0;
  int32_t gpu_kernels = 0;
};

}  // namespace warpcall::client
