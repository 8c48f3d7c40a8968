#include "server/transport/grpc_1_51/busy_poll.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "tests/e2e/eventually.h"

namespace warpcall {
namespace {

constexpr absl::Duration kForever = absl::Hours(1);
constexpr double kSpunSeconds = 0.02;

// An epoll with one descriptor, and a thread that waits for it.
class BusyPollTest : public ::testing::Test {
 protected:
  BusyPollTest() : epoll_(epoll_create1(0)), event_(eventfd(0, 0)) {
    epoll_event interest = {.events = EPOLLIN, .data = {.fd = event_}};
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &interest), 0);
  }
  ~BusyPollTest() override {
    SetBusyPoll(absl::ZeroDuration());
    close(event_);
    close(epoll_);
  }

  void Happen() { EXPECT_EQ(eventfd_write(event_, 1), 0); }
  // The descriptors that are ready; takes the event.
  int Wait(int timeout_ms) {
    epoll_event ready;
    int count;
    do {  // a process that was stopped and goes on is interrupted
      count = epoll_wait(epoll_, &ready, 1, timeout_ms);
    } while (count < 0 && errno == EINTR);
    eventfd_t value;
    if (count == 1) {
      EXPECT_EQ(eventfd_read(event_, &value), 0);
    }
    return count;
  }
  // From now on it is `duration` since an event that busy polling counts from.
  void HaveJustHappened(absl::Duration duration) {
    SetBusyPoll(duration);
    Happen();
    EXPECT_EQ(Wait(-1), 1);
  }

  const int epoll_;
  const int event_;
};

// A thread that has begun to wait.
class Waiter {
 public:
  template <typename Wait>
  explicit Waiter(Wait wait)
      : thread_([this, wait] {
          thread_id_ = gettid();
          wait();
        }) {
    EXPECT_TRUE(testing::Eventually([this] { return thread_id_ != 0; }));
  }
  ~Waiter() { thread_.join(); }

  double CpuSeconds() {
    clockid_t clock;
    timespec time = {};
    EXPECT_EQ(pthread_getcpuclockid(thread_.native_handle(), &clock), 0);
    EXPECT_EQ(clock_gettime(clock, &time), 0);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  bool Sleeps() {
    std::ifstream file(absl::StrCat("/proc/self/task/", thread_id_.load(), "/stat"));
    std::string text;
    std::getline(file, text);  // "ID (NAME) STATE ..."
    return absl::StrContains(text, ") S ");
  }

 private:
  std::atomic<pid_t> thread_id_{0};
  std::thread thread_;
};

TEST_F(BusyPollTest, LongWaitsAreCut) {
  if (EpollWaits() == 0 && (Wait(0), EpollWaits() == 0)) GTEST_SKIP() << "gRPC does not wait here";
  const absl::Time start = absl::Now();
  EXPECT_EQ(Wait(60'000), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST_F(BusyPollTest, StaysAwakeAfterAnEventAndFindsTheNext) {
  HaveJustHappened(kForever);
  Waiter waiter([this] { EXPECT_EQ(Wait(-1), 1); });
  EXPECT_TRUE(testing::Eventually([&] { return waiter.CpuSeconds() > kSpunSeconds; }));
  Happen();
}

TEST_F(BusyPollTest, SleepsWhenItsTimeIsOver) {
  HaveJustHappened(absl::Microseconds(1));
  Waiter waiter([this] { EXPECT_EQ(Wait(-1), 1); });
  EXPECT_TRUE(testing::Eventually([&] { return waiter.Sleeps(); }));
  Happen();
}

TEST_F(BusyPollTest, SleepsAtOnceUnlessItIsAskedFor) {
  HaveJustHappened(absl::ZeroDuration());
  // Takes the minimum of several, since a host's share of a virtual machine's core counts as its
  // thread's time.
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    Waiter waiter([this] { EXPECT_EQ(Wait(-1), 1); });
    const bool sleeps = testing::Eventually([&] { return waiter.Sleeps(); });
    least = std::min(least, waiter.CpuSeconds());
    Happen();
    ASSERT_TRUE(sleeps);
  }
  EXPECT_LT(least, kSpunSeconds);
}

TEST_F(BusyPollTest, KeepsToTheTimeout) {
  HaveJustHappened(kForever);
  const int64_t start_ns = MonotonicNs();
  EXPECT_EQ(Wait(0), 0);
  EXPECT_EQ(Wait(20), 0);
  EXPECT_GE(MonotonicNs() - start_ns, 19'000'000);
  SetBusyPoll(absl::ZeroDuration());
  EXPECT_EQ(Wait(20), 0);
}

TEST_F(BusyPollTest, TellsErrorsAsEpollWaitDoes) {
  HaveJustHappened(kForever);
  epoll_event ready;
  EXPECT_EQ(epoll_wait(event_, &ready, 1, -1), -1);
  EXPECT_EQ(errno, EINVAL);
}

// Checks the purpose of it all: the library's own waits go through busy polling.
TEST_F(BusyPollTest, IsWhereGrpcWaits) {
  grpc::CallbackGenericService service;  // knows no method
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const int64_t before = EpollWaits();
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(channel->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(60))));
  EXPECT_GT(EpollWaits(), before);
}

}  // namespace
}  // namespace warpcall
