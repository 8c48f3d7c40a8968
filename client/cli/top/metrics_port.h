// The metrics port of a server, as `warpcall top` reads it: GET /status.json over a socket.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace warpcall::cli {

// A quantile as the server estimates it.
struct TopQuantile {
  double seconds = -1;  // negative: nothing was counted
  bool is_lower_bound = false;
};

struct TopTraffic {
  double requests_per_second = 0;
  double failed_per_second = 0;
  TopQuantile p50, p99, queue_p99;
};

struct TopDevice {
  std::string name;
  bool is_open = true;
  bool healthy = true;
  double memory_used_bytes = 0, memory_total_bytes = 0;
  double resident_used_bytes = 0;
  int64_t resident_tensors = 0;
  double copy_bytes_per_second = 0;                           // 0: not measured
  std::vector<std::pair<std::string, double>> multiply_adds;  // measured: "bfloat16", FLOP/s
  int64_t queue_depth = 0;
  double queue_oldest_seconds = 0;
};

struct TopKernel {
  std::string name;                 // empty: of requests that named no kernel that exists
  std::string auto_implementation;  // empty: none can run
  int64_t auto_requests = 0;        // 0: the implementation is only the first in order
  int64_t requests = 0;             // since the server began
  TopTraffic last_minute;
};

struct TopInspection {
  double unix_seconds = 0;
  std::string method, kernel, push, outcome, principal;
  double seconds = 0;
};

struct TopStatus {
  std::string address, version, phase, readiness;
  bool ready = false;
  double uptime_seconds = 0;
  double unix_seconds = 0;
  double window_seconds = 0;
  TopTraffic last_minute;
  std::vector<TopDevice> devices;
  std::vector<TopKernel> kernels;
  std::vector<TopInspection> inspections;  // newest first
};

class MetricsPort {
 public:
  static constexpr size_t kReplyBytesMax = size_t{1} << 20;

  // Resolves `address`: HOST (port 9470), HOST:PORT, [IPV6] or [IPV6]:PORT. INVALID_ARGUMENT for
  // other text, UNAVAILABLE for a host that has no address.
  static absl::StatusOr<MetricsPort> Find(const std::string& address);

  const std::string& address() const { return address_; }

  // The answer of the first address that takes the connection, as JSON. UNAVAILABLE,
  // DEADLINE_EXCEEDED and UNIMPLEMENTED say what to do; INTERNAL: the answer is no server's.
  // CANCELLED once the file `cancel` can be read; -1: nothing cancels.
  absl::StatusOr<nlohmann::json> ReadStatus(absl::Duration timeout, int cancel = -1) const;
  // Reads what ReadStatus returned; members that are missing have their defaults. INTERNAL if it is
  // no server's status.
  absl::StatusOr<TopStatus> ToTopStatus(const nlohmann::json& value) const;

 private:
  struct Address {
    sockaddr_storage storage = {};
    socklen_t bytes = 0;
  };

  // The reply's bytes.
  absl::StatusOr<std::string> Ask(absl::Time deadline, int cancel) const;

  std::string address_;
  std::vector<Address> addresses_;
};

}  // namespace warpcall::cli
