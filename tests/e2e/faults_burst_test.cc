// Ten times more requests at once than may wait: each is done or gets a retry hint, and requests of
// other connections do not suffer.
//
// The test measures the others' wait by the CPU time of gRPC's threads during a request, which a
// busy machine does not change: the time that serves the request, and the time that serves the
// burst before it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/fault_process.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

constexpr int kQueueLimit = 20;
constexpr char kQueueFlag[] = "--queue_limit=20";
constexpr int kBurst = 10 * kQueueLimit;
constexpr int kBurstConnections = 10;
// The server reaches 7.6 to 8: gRPC's two threads take some 31 us for each of the 200 requests,
// whatever their outcome, and look for others' new ones when they have none left.
constexpr double kRatioMax = 12;
// Pause between bursts, so that the test measures the queue and not a busy machine.
constexpr absl::Duration kBurstPause = absl::Milliseconds(100);
constexpr int kSeries = 5;      // when latencies are compared
constexpr int kRequests = 400;  // per series: undisturbed, and again beside the bursts
constexpr absl::Duration kRequestPause = absl::Milliseconds(1);

// CPU time so far of each of the server's threads that run gRPC's callbacks.
class CallbackThreads {
 public:
  explicit CallbackThreads(pid_t pid) {
    // gRPC starts the second when the first has work; each has its name when it has run.
    EXPECT_TRUE(Eventually([&] {
      Open(pid);
      return !files_.empty();
    }));
  }
  ~CallbackThreads() {
    for (const int file : files_) close(file);
  }
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;

  std::vector<double> WorkedUs() const {
    std::vector<double> worked_us;
    for (const int file : files_) {
      char text[64] = {};
      EXPECT_GT(pread(file, text, sizeof(text) - 1, 0), 0);
      worked_us.push_back(std::atof(text) / 1e3);
    }
    return worked_us;
  }

 private:
  void Open(pid_t pid) {
    for (const auto& task :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"))) {
      std::ifstream comm(task.path() / "comm");
      std::string name;
      comm >> name;
      if (name != "nexting_thread") continue;  // gRPC 1.51's name
      files_.push_back(open((task.path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC));
    }
  }

  std::vector<int> files_;
};

double Percentile99(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() * 99 / 100];
}

// Another client, which sends small requests one after the other.
class Other {
 public:
  explicit Other(const ServerProcess& server)
      : channel_(Connect(server.address())), threads_(server.pid()) {}

  // Adds the CPU time of the busiest of gRPC's threads during each request.
  void Send(std::vector<double>* worked_us) {
    for (int i = 0; i < kRequests; ++i) {
      absl::SleepFor(kRequestPause);
      const std::vector<double> before_us = threads_.WorkedUs();
      const Reply reply = Execute(channel_, request_);
      const std::vector<double> after_us = threads_.WorkedUs();
      EXPECT_TRUE(reply.status.ok()) << reply.CodeAndMessage();
      double most_us = 0;
      for (size_t t = 0; t < after_us.size(); ++t)
        most_us = std::max(most_us, after_us[t] - before_us[t]);
      worked_us->push_back(most_us);
      ++sent_;
    }
  }

  int sent() const { return sent_; }

 private:
  const v1::ExecuteRequest request_ = Request("identity", {FloatTensor(1024)});
  const std::shared_ptr<grpc::Channel> channel_;
  const CallbackThreads threads_;
  int sent_ = 0;
};

// Arguments of the faulty client: bursts from ten connections, with pauses between them.
std::vector<std::string> BurstsOf(const ServerProcess& server, absl::Duration pause) {
  return {"burst",
          server.address(),
          absl::StrCat(kBurstConnections),
          absl::StrCat(kBurst),
          absl::StrCat(absl::ToInt64Milliseconds(pause)),
          absl::StrCat("the limit is ", kQueueLimit, " (queue_limit)")};
}

// If latencies are compared, expects at most `kRatioMax` times the undisturbed time, over several
// series that alternate. Always expects each request to end as it should and to be counted.
TEST(FaultsBurst, TenTimesTheQueueIsHarmless) {
  ServerProcess server({kQueueFlag, "--log_level=error"});
  const std::vector<std::string> bursts = BurstsOf(server, kBurstPause);
  Other other(server);
  std::vector<double> warm_up_us, calm_us, disturbed_us;
  other.Send(&warm_up_us);
  std::vector<int> totals(3);
  for (int i = 0; i < (LatenciesAreCompared() ? kSeries : 1); ++i) {
    other.Send(&calm_us);
    const FaultProcess fault(bursts, &totals);
    other.Send(&disturbed_us);
  }
  const double ratio = Percentile99(disturbed_us) / Percentile99(calm_us);
  std::printf("p99 undisturbed: %.0f us of work; beside bursts: %.0f us (%.2f x)\n",
              Percentile99(calm_us), Percentile99(disturbed_us), ratio);
  if (LatenciesAreCompared()) {
    EXPECT_LE(ratio, kRatioMax);
  }
  const int done = totals[0];
  const int refused = totals[1];
  EXPECT_EQ(totals[2], 0) << "were refused with another code or text, or not told when to retry";
  EXPECT_GT(done, 0);
  EXPECT_EQ((done + refused) % kBurst, 0);
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"kernel=\"gelu\"", "code=\"OK\""}), done);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"queue_requests\""}), refused);
  EXPECT_EQ(server.Sum("warpcall_requests_total"), other.sent() + done + refused);
  EXPECT_EQ(server.Sum("warpcall_queue_depth"), 0);
  EXPECT_EQ(server.Stop(), 0);
}

// One burst, while no lane takes anything.
TEST(FaultsBurst, WhatFindsAFullQueueIsRefusedUnread) {
  ServerProcess server(FlagsForHeld({"--lanes_per_device=1", kQueueFlag}));
  Gate gate;
  PendingCall running(server, gate.HeldRequest());
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  std::vector<int> totals(3);
  {
    const FaultProcess fault(BurstsOf(server, absl::Hours(1)), &totals);
    EXPECT_TRUE(Eventually([&] {
      return server.Sum("warpcall_rejected_total", {"reason=\"queue_requests\""}) ==
             kBurst - kQueueLimit;
    }));
    gate.Open();
  }
  EXPECT_EQ(running.Code(), grpc::StatusCode::OK);
  EXPECT_THAT(totals, ::testing::ElementsAre(kQueueLimit, kBurst - kQueueLimit, 0));
  // Most are refused before anyone has looked which kernel they are for.
  EXPECT_GT(server.Sum("warpcall_requests_total", {"kernel=\"\"", "code=\"RESOURCE_EXHAUSTED\""}),
            (kBurst - kQueueLimit) / 2);
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
