// Well-behaved clients, and the effect of somebody else's fault on their latency.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/raw_call.h"

namespace warpcall::testing {

// Some clients, each with a connection of its own, that send small requests at a steady rate.
class SteadyClients {
 public:
  explicit SteadyClients(const std::string& address);

  // Lets all clients send for `period` and adds the time of each request,
  // in microseconds, counted from when it was due: a server that stands
  // still for a second spoils all that second's requests, not just one a
  // client. An answer that is not OK with the right tensor fails the test.
  void SendFor(absl::Duration period, std::vector<double>* latencies_us);

  int64_t sent() const { return sent_; }

 private:
  const v1::ExecuteRequest request_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  int64_t sent_ = 0;
};

// Something that goes on from when it is made until it is destroyed.
using Fault = std::shared_ptr<void>;

// Puts the calling thread behind all others that want to run. For the clients at fault, whose own
// work is not measured.
void GiveWay();

// Lets `clients` send in rounds; the second half of each round runs beside a fault that `begin`
// starts. A round begins when `settled` returns true, which it must: the server is done with the
// fault before. Where latencies are compared (tests/programs.h), expects the p99 beside faults,
// over all rounds, to be at most three times the p99 without: after ten rounds, or twenty, or
// thirty. Elsewhere prints it after three.
void ExpectUndisturbed(
    SteadyClients* clients, const std::function<Fault()>& begin,
    const std::function<bool()>& settled = [] { return true; });

}  // namespace warpcall::testing
