#include "client/cli/common/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

namespace warpcall::cli {
namespace {

// All that a signal handler can reach. It runs in whichever thread the system chooses.
std::atomic<int> signal_event{-1};
std::atomic<int> signal_number{0};
static_assert(std::atomic<int>::is_always_lock_free);

void WakeUp(int event) {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then its reader is awake anyway.
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
}

// `action` of the signals that end a program, but where the program was started with them ignored.
void SetHandlers(void (*action)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_IGN) continue;
    struct sigaction next = {};
    next.sa_handler = action;
    next.sa_flags = SA_RESTART;
    sigaction(signal, &next, nullptr);
  }
}

void OnSignal(int signal) {
  const int saved_errno = errno;
  SetHandlers(SIG_DFL);  // the next one ends the program
  signal_number = signal;
  WakeUp(signal_event);
  errno = saved_errno;
}

}  // namespace

Interrupt::Interrupt(std::function<void(int signal)> act)
    : act_(std::move(act)), event_(eventfd(0, EFD_CLOEXEC)) {
  signal_number = 0;
  signal_event = event_;
  thread_ = std::thread([this] { Watch(); });
  SetHandlers(OnSignal);
}

Interrupt::~Interrupt() {
  SetHandlers(SIG_DFL);
  WakeUp(event_);
  thread_.join();
  signal_event = -1;
  close(event_);
}

int Interrupt::signal() const { return signal_number; }

void Interrupt::Watch() {
  uint64_t count;
  [[maybe_unused]] const ssize_t bytes = read(event_, &count, sizeof(count));
  if (const int signal = signal_number; signal != 0) act_(signal);
}

}  // namespace warpcall::cli
