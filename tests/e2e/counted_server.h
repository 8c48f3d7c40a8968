// A server whose counts are compared with its clients' at every step. Each
// request must be counted exactly once, under the code that its client got
// and under as much of kernel and implementation as was known by then, in
// warpcall_requests_total as in warpcall_request_duration_seconds. (The
// engine's tests cover a lost device: the CPU cannot be lost.)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"

namespace warpcall::testing {

// Expected end of a request.
struct Ended {
  grpc::StatusCode code;
  std::string kernel = {};
  std::string implementation = {};
};

// Ends of held requests (held_request.h) and of gelu by its reference.
Ended HeldEnds(grpc::StatusCode code);
Ended GeluEnds(grpc::StatusCode code);
// A small request that GeluEnds is about.
v1::ExecuteRequest SmallRequest();

class CountedServer {
 public:
  explicit CountedServer(const std::vector<std::string>& flags = {});

  ServerProcess& process() { return process_; }
  const ServerProcess& process() const { return process_; }
  const std::string& address() const { return process_.address(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Calls Execute and expects that end; a correct answer may have any implementation.
  Reply Send(const std::string& message, Ended ended);
  Reply Send(const v1::ExecuteRequest& request, const Ended& ended) {
    return Send(request.SerializeAsString(), ended);
  }
  // `more` have ended, perhaps a moment after their clients have seen it, and nothing else.
  void Expect(const std::vector<Ended>& more, const std::string& what = "");
  // Nothing comes late: all is at rest, and one more request is one more. Ends the server.
  void ExpectNothingMore();

  bool Waiting(double requests) const { return process_.Sum("warpcall_queue_depth") == requests; }

 private:
  ServerProcess process_;
  std::shared_ptr<grpc::Channel> channel_;
  std::vector<Ended> ended_;
};

}  // namespace warpcall::testing
