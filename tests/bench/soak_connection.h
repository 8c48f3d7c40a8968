// One of the soak's connections, with several calls on their way at once.
#pragma once

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tests/bench/soak_mix.h"

namespace warpcall::bench {

struct SoakConnectionOptions {
  std::string address;
  std::string device = {};      // empty: the server's choice
  absl::Span<const char> data;  // as SoakMix takes it
  uint64_t seed = 0;
};

// Used by one thread at a time.
class SoakConnection {
 public:
  explicit SoakConnection(const SoakConnectionOptions& options);
  ~SoakConnection();
  SoakConnection(const SoakConnection&) = delete;
  SoakConnection& operator=(const SoakConnection&) = delete;

  // Sends `small` and, spread evenly among them, `large` requests, and waits for all answers. The
  // first that is an error or wrong ends it once those on their way are answered.
  absl::Status Run(int64_t small, int64_t large);
  // One of the largest requests.
  absl::Status RunLargest();

  int64_t input_bytes() const { return input_bytes_; }  // sent so far

 private:
  struct Flight;

  void Start(SoakRequest request);
  // Waits for one answer and checks it.
  absl::Status Land();

  const std::string device_;
  SoakMix mix_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  int64_t on_their_way_ = 0;
  int64_t answers_ = 0;
  int64_t input_bytes_ = 0;
};

}  // namespace warpcall::bench
