#include "server/worker/mailbox.h"

#include <sched.h>

#include <algorithm>

#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/worker/protocol.h"

namespace warpcall::worker {
namespace {

// As long as a GPU's lane looks for work before it sleeps: a client that waits for each answer
// comes back within some 100 us.
constexpr int64_t kSpinNs = 200'000;
// From then on whoever else wants the core gets it.
constexpr int64_t kAloneNs = 2'000;
// Who gets its core back so late shares it. A thread that is woken may run before others; one that
// yields waits for their slices, some 3 ms each.
constexpr int64_t kSharedNs = 20'000;
// Cores for each thread that may wait awake.
constexpr int kCoresPerPlace = 4;

bool Arrived(const MailSignal& signal, uint32_t messages) {
  return signal.messages.load(std::memory_order_acquire) == messages;
}

bool Spin(const MailSignal& signal, uint32_t messages, SpinPlaces* places) {
  const int64_t start_ns = MonotonicNs();
  int64_t now_ns = start_ns;
  while (!Arrived(signal, messages)) {
    if (now_ns - start_ns >= kSpinNs) return false;
    const int64_t before_ns = now_ns;
    if (now_ns - start_ns >= kAloneNs) sched_yield();
    now_ns = MonotonicNs();
    if (now_ns - before_ns < kSharedNs) continue;
    places->Rest(now_ns);
    return Arrived(signal, messages);
  }
  return true;
}

}  // namespace

bool SpinPlaces::Take(int64_t now_ns) {
  if (now_ns < rest_until_ns_.load(std::memory_order_relaxed)) return false;
  int free = free_.load(std::memory_order_relaxed);
  while (free > 0)
    if (free_.compare_exchange_weak(free, free - 1, std::memory_order_relaxed)) return true;
  return false;
}

int SpinPlacesFor(int cores, int devices) { return cores / kCoresPerPlace / std::max(1, devices); }

int UsableCores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// Both sides first write, then read what the other writes, in one order that all see: either the
// reader sees the message before it sleeps, or the writer sees that it sleeps.
absl::Status RingFor(MailSignal* signal, int socket) {
  signal->messages.fetch_add(1);
  if (signal->reader_sleeps.exchange(0) == 0) return absl::OkStatus();
  const char bell = 0;
  return SendBytes(socket, &bell, sizeof(bell));
}

// Whoever has taken the sleeper's word back rings, and then that bell must be waited for.
bool GoToSleep(MailSignal* signal, uint32_t messages) {
  signal->reader_sleeps.store(1);
  return signal->messages.load() != messages || signal->reader_sleeps.exchange(0) == 0;
}

namespace {

// A bell, or why none comes any more.
absl::Status AwaitBell(const MailWait& wait) {
  char bell;
  for (;;) {
    absl::Status rung = ReceiveBytes(wait.socket, &bell, sizeof(bell));
    if (!absl::IsDeadlineExceeded(rung)) return rung;
    if (wait.watch != nullptr && wait.watch->MustEnd())
      return absl::DeadlineExceededError("the worker process was ended: it did not answer in time");
  }
}

}  // namespace

// A reader that is awake may have the last message, and be asleep for the next, before its writer
// comes to look whether it sleeps: one bell may be for that, and no more.
absl::Status AwaitMail(MailSignal* signal, uint32_t messages, const MailWait& wait) {
  if (Arrived(*signal, messages)) return absl::OkStatus();
  if (wait.places->Take(MonotonicNs())) {
    const bool arrived = Spin(*signal, messages, wait.places);
    wait.places->Leave();
    if (arrived) return absl::OkStatus();
  }
  for (int bells = 0; bells < 2; ++bells) {
    if (!GoToSleep(signal, messages)) return absl::OkStatus();
    RETURN_IF_ERROR(AwaitBell(wait));
    if (Arrived(*signal, messages)) return absl::OkStatus();
  }
  return absl::UnavailableError("the worker process rang without a message");
}

}  // namespace warpcall::worker
