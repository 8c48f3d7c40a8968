// A place in memory that two processes share, through which one hands the other a message at a
// time. The reader polls it for a while, then sleeps at a socket, where the writer rings. A hop
// costs a microsecond while both are running, and a wake-up otherwise. The socket also shows that
// the other process is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "proto/common/check.h"
#include "server/engine/run_watch.h"

namespace warpcall::worker {

// Limits the threads of a process that may poll at once, since polling competes with the threads
// that do the work. No thread polls for a while after one has seen contention for its core. Times
// are MonotonicNs's. Thread-safe.
class SpinPlaces {
 public:
  static constexpr int64_t kRestNs = 100'000'000;

  explicit SpinPlaces(int places) : free_(places) {}
  bool Take(int64_t now_ns);
  void Leave() { free_.fetch_add(1, std::memory_order_relaxed); }
  void Rest(int64_t now_ns) { rest_until_ns_.store(now_ns + kRestNs, std::memory_order_relaxed); }

 private:
  std::atomic<int> free_;
  std::atomic<int64_t> rest_until_ns_{0};
};

// Places for a process that may use `cores` of the machine and serves `devices` in this way: none
// where waiting awake would take a core from the work that is waited for.
int SpinPlacesFor(int cores, int devices);
// Cores that this process may run on.
int UsableCores();

// State that a mailbox's reader and writer share beside the message. Zero bytes: empty.
struct MailSignal {
  alignas(64) std::atomic<uint32_t> messages;  // put in so far
  std::atomic<uint32_t> reader_sleeps;         // 1: asleep; whoever sets it to 0 acts on that
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// The writer's side, once the message is in place: UNAVAILABLE when the reader slept and is gone.
absl::Status RingFor(MailSignal* signal, int socket);
// Marks the reader as asleep, unless `messages` have been put in, as one step of AwaitMail. Returns
// false if they have; the writer does not ring then.
bool GoToSleep(MailSignal* signal, uint32_t messages);

// The resources of a reader's wait.
struct MailWait {
  int socket;
  SpinPlaces* places;
  // Checked each time the socket's own limit (SO_RCVTIMEO) ends a wait; null: never.
  const RunWatch* watch = nullptr;
};

// The reader's side: returns when `messages` have been put in. UNAVAILABLE when the other end is
// gone, or rang for nothing; DEADLINE_EXCEEDED when the watch says that the work must end.
absl::Status AwaitMail(MailSignal* signal, uint32_t messages, const MailWait& wait);

// Messages of one kind in one direction. CopyMessage(from, &to) copies one, as much of it as it
// uses; `from` may be in this memory. The writer REQUIRES that the reader has taken the one
// before: each waits for the other's answer.
template <typename T>
struct Mailbox {
  static_assert(std::is_trivially_copyable_v<T>);
  MailSignal signal;
  T message;

  absl::Status Put(const T& to_send, int socket) {
    CopyMessage(to_send, &message);
    return RingFor(&signal, socket);
  }
  // The `nth` message, from 1 on, to `taken`: a copy, which the other process cannot change any
  // more.
  absl::Status Take(uint32_t nth, const MailWait& wait, T* taken) {
    WARPCALL_DCHECK(nth >= 1 && taken != &message, nth);
    absl::Status status = AwaitMail(&signal, nth, wait);
    if (status.ok()) CopyMessage(message, taken);
    return status;
  }
};

}  // namespace warpcall::worker
