#include "server/transport/grpc_1_51/busy_poll.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace warpcall {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::Duration kBusyPoll = absl::Microseconds(100);
constexpr int kCpusMin = 8;
// An answer that the network does not take at once has a thread of gRPC's poll for 10 s, and the
// end of the process waits for that thread. A shorter wait only makes gRPC look again.
constexpr int kTimeoutMaxMs = 500;

std::atomic<int64_t> busy_poll_ns{0};
std::atomic<int64_t> last_event_ns{0};
std::atomic<int64_t> epoll_waits{0};

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// epoll_pwait without a mask is epoll_wait.
int Wait(int epoll, epoll_event* events, int events_max, int timeout_ms) {
  return epoll_pwait(epoll, events, events_max, timeout_ms, nullptr);
}

}  // namespace

void SetBusyPoll(absl::Duration duration) {
  busy_poll_ns.store(absl::ToInt64Nanoseconds(duration), std::memory_order_relaxed);
}

absl::Duration BusyPollFor(int cpus) { return cpus < kCpusMin ? absl::ZeroDuration() : kBusyPoll; }

int64_t EpollWaits() { return epoll_waits.load(std::memory_order_relaxed); }

// As epoll_wait, but no longer than kTimeoutMaxMs where `timeout_ms` is not negative.
int WaitAwakeFirst(int epoll, epoll_event* events, int events_max, int timeout_ms) {
  timeout_ms = std::min(timeout_ms, kTimeoutMaxMs);
  epoll_waits.fetch_add(1, std::memory_order_relaxed);
  const int64_t start_ns = NowNs();
  int64_t awake_until_ns =
      last_event_ns.load(std::memory_order_relaxed) + busy_poll_ns.load(std::memory_order_relaxed);
  if (timeout_ms >= 0)
    awake_until_ns = std::min(awake_until_ns, start_ns + int64_t{timeout_ms} * 1'000'000);
  int64_t now_ns = start_ns;
  int count = 0;
  while (count == 0 && now_ns < awake_until_ns) {
    count = Wait(epoll, events, events_max, 0);
    // Lets other threads run on this core.
    if (count == 0) sched_yield();
    now_ns = NowNs();
  }
  if (count == 0) {
    const auto waited_ms = static_cast<int>((now_ns - start_ns) / 1'000'000);
    count = Wait(epoll, events, events_max,
                 timeout_ms < 0 ? timeout_ms : std::max(timeout_ms - waited_ms, 0));
    now_ns = NowNs();
  }
  if (count > 0) last_event_ns.store(now_ns, std::memory_order_relaxed);
  return count;
}

}  // namespace warpcall

#if !defined(__SANITIZE_THREAD__)
extern "C" int epoll_wait(int epoll, epoll_event* events, int events_max, int timeout_ms) {
  return warpcall::WaitAwakeFirst(epoll, events, events_max, timeout_ms);
}
#endif
