// A process's first connection beside its first wait for a lock: gRPC's poller gets the new socket
// by an epoll_ctl with the side effects of that wait, as one of gRPC's own locks may have.
#include "client/cpp/rpc/channel.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <limits>

#include "absl/base/internal/sysinfo.h"
#include "gtest/gtest.h"
#include "tests/client/stalled_peer.h"
#include "warpcall/client.h"
#include "warpcall/tensor.h"

namespace {

std::atomic<int> waits = 0;
std::atomic<bool> waiting = false;

}  // namespace

// Takes the C library's place in gRPC's library, too.
extern "C" int epoll_ctl(int poller, int operation, int fd, epoll_event* event) noexcept {
  const auto result = static_cast<int>(syscall(SYS_epoll_ctl, poller, operation, fd, event));
  if (result == 0 && operation == EPOLL_CTL_ADD && waiting.load()) {
    absl::base_internal::NominalCPUFrequency();
    ++waits;
  }
  return result;
}

namespace warpcall::client {
namespace {

TEST(ChannelTest, AWaitForALockWhileConnectingFailsNoConnection) {
  testing::StalledPeer peer;
  Client client(peer.address(), {.retry = {.attempts_max = 1}, .stall_timeout = absl::Seconds(1)});
  waiting = true;
  const auto result = client.Identity(Tensor::FromFloats({1}, {1}), {.timeout = absl::Seconds(3)});
  waiting = false;
  EXPECT_GT(waits.load(), 0);
  // Connected, the peer says nothing: not UNAVAILABLE for want of a connection.
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded) << result.status();
}

// 0 and less would end a connection with its first look at it.
TEST(ChannelTest, AStallTimeoutIsWithinWhatGrpcTakes) {
  constexpr int kNeverMs = std::numeric_limits<int>::max();
  EXPECT_EQ(KeepaliveTimeoutMs(absl::InfiniteDuration()), kNeverMs);
  EXPECT_EQ(KeepaliveTimeoutMs(absl::Hours(24 * 40)), kNeverMs);
  EXPECT_EQ(KeepaliveTimeoutMs(absl::Seconds(20)), 20'000);
  EXPECT_EQ(KeepaliveTimeoutMs(absl::Nanoseconds(1)), 1);
  for (const absl::Duration none : {absl::ZeroDuration(), -absl::Seconds(1)}) {
    Client client("127.0.0.1:1", {.stall_timeout = none});
    const auto result = client.Identity(Tensor::FromFloats({1}, {1}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
  }
}

}  // namespace
}  // namespace warpcall::client
