#include "server/worker/mailbox.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"

namespace warpcall::worker {
namespace {

// Time that a GPU's lane polls for work before it sleeps: a client that waits for each answer sends
// its next request within some 100 us.
constexpr int64_t kSpinNs = 200'000;
// Time after which the thread yields the core to any other thread.
constexpr int64_t kAloneNs = 2'000;
// A thread that gets its core back after this long shares the core. A woken thread may run before
// others; a yielding thread waits for their slices, some 3 ms each.
constexpr int64_t kSharedNs = 20'000;
// Cores for each thread that may wait without sleeping.
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

absl::Status RingBell(int socket) {
  const char bell = 0;
  ssize_t sent;
  do {
    sent = send(socket, &bell, sizeof(bell), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == sizeof(bell)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the worker process is gone: ", strerror(errno)));
}

// UNAVAILABLE when the other end is gone or strange; DEADLINE_EXCEEDED when nothing came within the
// socket's own time limit, if it has one (SO_RCVTIMEO).
absl::Status ReceiveBell(int socket) {
  char bell;
  ssize_t received;
  do {
    received = recv(socket, &bell, sizeof(bell), MSG_TRUNC);  // says how long the datagram was
  } while (received < 0 && errno == EINTR);
  if (received == sizeof(bell)) return absl::OkStatus();
  if (received < 0 && errno == EAGAIN) return absl::DeadlineExceededError("nothing came");
  if (received > 0)
    return absl::UnavailableError(absl::StrCat("the worker process is lost: it sent ", received,
                                               " bytes where a message has ", sizeof(bell)));
  return absl::UnavailableError(absl::StrCat(
      "the worker process is gone: ", received == 0 ? "it closed its socket" : strerror(errno)));
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

// Both sides first write, then read the other's word, in one order for all: either the reader sees
// the message before it sleeps, or the writer sees that the reader sleeps.
absl::Status RingFor(MailSignal* signal, int socket) {
  signal->messages.fetch_add(1);
  if (signal->reader_sleeps.exchange(0) == 0) return absl::OkStatus();
  return RingBell(socket);
}

// A writer that has reset the reader's flag rings, and the reader must wait for that bell.
bool GoToSleep(MailSignal* signal, uint32_t messages) {
  signal->reader_sleeps.store(1);
  return signal->messages.load() != messages || signal->reader_sleeps.exchange(0) == 0;
}

namespace {

// A bell, or why none comes any more.
absl::Status AwaitBell(const MailWait& wait) {
  for (;;) {
    absl::Status rung = ReceiveBell(wait.socket);
    if (!absl::IsDeadlineExceeded(rung)) return rung;
    if (wait.watch != nullptr && wait.watch->MustEnd())
      return absl::DeadlineExceededError("the worker process was ended: it did not answer in time");
  }
}

}  // namespace

// A reader that is awake can take a message and go to sleep for the next one before the writer of
// the first message checks whether the reader sleeps. That writer then rings although no message
// has come since. This can happen once per wait, so a second such bell is an error.
absl::Status AwaitMail(MailSignal* signal, uint32_t messages, const MailWait& wait) {
  WARPCALL_DCHECK(wait.socket >= 0 && wait.places != nullptr, wait.socket);
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
  return absl::UnavailableError("the worker process signalled but sent no message");
}

}  // namespace warpcall::worker
