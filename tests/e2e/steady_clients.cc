#include "tests/e2e/steady_clients.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <thread>

#include "absl/time/clock.h"
#include "tests/e2e/eventually.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

// Together they need some third of the server's capacity on two cores: the test measures the
// server, not a busy machine.
constexpr int kClients = 4;
constexpr absl::Duration kInterval = absl::Milliseconds(4);
constexpr absl::Duration kRound = absl::Milliseconds(500);
constexpr double kRatioMax = 3;
constexpr int kRoundsBetweenLooks = 10;
constexpr int kRoundsMax = 30;
constexpr int kRoundsUncompared = 1;

double Percentile99(std::vector<double> values) {
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 99 / 100);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// Latencies of several rounds, half of which were disturbed.
struct Rounds {
  double Ratio() const { return Percentile99(disturbed_us) / Percentile99(calm_us); }

  int count = 0;
  std::vector<double> calm_us;
  std::vector<double> disturbed_us;
};

// One client's part of a round.
std::vector<double> SendSteadily(const std::shared_ptr<grpc::Channel>& channel,
                                 const v1::ExecuteRequest& request, absl::Time end) {
  std::vector<double> latencies_us;
  absl::Time answered = absl::InfinitePast();
  for (absl::Time due = absl::Now(); due < end; due += kInterval) {
    // A sleep that ends late is not the server's fault; a previous answer that came late is.
    const bool behind = answered > due;
    absl::SleepFor(due - absl::Now());
    const absl::Time begin = behind ? due : absl::Now();
    const Reply reply = Execute(channel, request);
    answered = absl::Now();
    latencies_us.push_back(absl::ToDoubleMicroseconds(answered - begin));
    EXPECT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
    if (!reply.status.ok()) continue;
    EXPECT_EQ(reply.response.outputs(0).data(), request.inputs(0).data());
  }
  return latencies_us;
}

}  // namespace

SteadyClients::SteadyClients(const std::string& address)
    : request_(Request("identity", {FloatTensor(1024)})) {
  for (int i = 0; i < kClients; ++i) channels_.push_back(Connect(address));
}

void SteadyClients::SendFor(absl::Duration period, std::vector<double>* latencies_us) {
  const absl::Time end = absl::Now() + period;
  std::vector<std::vector<double>> parts(channels_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < channels_.size(); ++i)
    threads.emplace_back([&, i] { parts[i] = SendSteadily(channels_[i], request_, end); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& part : parts) {
    latencies_us->insert(latencies_us->end(), part.begin(), part.end());
    sent_ += static_cast<int64_t>(part.size());
  }
}

void GiveWay() {
  // Linux gives each thread a nice value of its own.
  EXPECT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19), 0);
}

void ExpectUndisturbed(SteadyClients* clients, const std::function<Fault()>& begin,
                       const std::function<bool()>& settled) {
  Rounds rounds;
  clients->SendFor(kRound, &rounds.calm_us);  // to warm up
  rounds.calm_us.clear();
  // More rounds make the verdict surer, and every round counts: none is thrown away for its result.
  const int rounds_max = LatenciesAreCompared() ? kRoundsMax : kRoundsUncompared;
  while (rounds.count < rounds_max && !::testing::Test::HasFailure()) {
    if (rounds.count > 0 && rounds.count % kRoundsBetweenLooks == 0 && rounds.Ratio() <= kRatioMax)
      break;
    clients->SendFor(kRound, &rounds.calm_us);
    Fault fault = begin();
    clients->SendFor(kRound, &rounds.disturbed_us);
    fault.reset();
    EXPECT_TRUE(Eventually(settled)) << "the server keeps something of a fault that is over";
    ++rounds.count;
  }
  std::printf(
      "%d rounds, p99 of %zu requests undisturbed: %.0f us; of %zu beside the fault: %.0f us "
      "(%.2f x)\n",
      rounds.count, rounds.calm_us.size(), Percentile99(rounds.calm_us), rounds.disturbed_us.size(),
      Percentile99(rounds.disturbed_us), rounds.Ratio());
  if (LatenciesAreCompared()) {
    EXPECT_LE(rounds.Ratio(), kRatioMax);
  }
}

}  // namespace warpcall::testing
