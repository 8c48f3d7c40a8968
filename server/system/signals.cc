#include "server/system/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

#include "absl/time/time.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"

namespace warpcall {
namespace {

// Reading flags takes milliseconds, unless their file's system hangs.
constexpr absl::Duration kFlagsTime = absl::Seconds(1);

bool were_blocked = false;

// Runs before the constructors of libraries, which take most of the time until main. Nothing of the
// C++ library may be used yet.
void BlockBeforeMain() {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, kDevicesLost}) sigaddset(&blocked, signal);
  if (sigprocmask(SIG_BLOCK, &blocked, &before) == 0)
    were_blocked = sigismember(&before, SIGTERM) == 1;
}

__attribute__((section(".preinit_array"),
               used)) void (*const block_before_main)() = BlockBeforeMain;

int OpenStopSignals() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  return signalfd(-1, &stop, SFD_CLOEXEC);
}

}  // namespace

bool StopSignalsWereBlocked() { return were_blocked; }

void UnblockStopSignals() {
  sigset_t all = StopSignals();
  sigaddset(&all, SIGHUP);
  pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, kDevicesLost}) sigaddset(&signals, signal);
  return signals;
}

StartWatch::StartWatch()
    : signals_(OpenStopSignals()), end_(eventfd(0, EFD_CLOEXEC)), thread_([this] { Run(); }) {}

StartWatch::~StartWatch() {
  eventfd_write(end_, 1);
  decided_.Notify();
  thread_.join();
  close(end_);
  close(signals_);
}

void StartWatch::ToServe() {
  serves_.store(true);
  decided_.Notify();
}

void StartWatch::Run() {
  pollfd watched[] = {{signals_, POLLIN, 0}, {end_, POLLIN, 0}};
  while (poll(watched, 2, -1) < 0 && errno == EINTR) {
  }
  if (watched[1].revents != 0) return;
  decided_.WaitFor(kFlagsTime);
  // Others take the signal, if they may now.
  if (poll(&watched[1], 1, 0) > 0) return;
  signalfd_siginfo signal = {};
  if (read(signals_, &signal, sizeof(signal)) != sizeof(signal)) return;
  const auto number = static_cast<int>(signal.ssi_signo);
  if (!serves_.load()) EndProcess(128 + number);
  Log(LogLevel::kInfo, "stopping: told to end before it served", {{"signal", number}});
  EndProcess(0);
}

}  // namespace warpcall
