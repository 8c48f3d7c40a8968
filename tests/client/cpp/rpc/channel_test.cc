// A process's first connection beside its first wait for a lock: gRPC's poller is given the new
// socket by an epoll_ctl that also does what such a wait does, as one of gRPC's own locks may.
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "absl/base/internal/sysinfo.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"
#include "gtest/gtest.h"
#include "tests/client/stalled_peer.h"

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

}  // namespace
}  // namespace warpcall::client
