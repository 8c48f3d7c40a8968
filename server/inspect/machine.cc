#include "server/inspect/machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/inspect/stolen_time.h"
#include "server/inspect/thread_waits.h"

namespace warpcall::inspect {
namespace {

// StolenTime's.
constexpr int64_t kTickNs = 10'000'000;
constexpr absl::Duration kPause = absl::Milliseconds(1);

class LinuxMachine final : public Machine {
 public:
  LinuxMachine(pid_t service, const std::string& stat_path)
      : loadavg_(open("/proc/loadavg", O_RDONLY | O_CLOEXEC)), stolen_(stat_path) {
    has_service_ = service > 0 && clock_getcpuclockid(service, &service_clock_) == 0;
  }
  ~LinuxMachine() override {
    if (loadavg_ >= 0) close(loadavg_);
  }

  int64_t NowNs() override { return MonotonicNs(); }

  void Pause() override { absl::SleepFor(kPause); }

  int64_t ServiceNs() override {
    timespec used = {};
    if (!has_service_ || clock_gettime(service_clock_, &used) != 0) return 0;
    return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
  }

  int64_t WaitedForCoreNs() override {
    // Each read makes the kernel list all cores, and the file counts in ticks.
    if (const int64_t now_ns = NowNs(); now_ns - stolen_seen_ns_ >= kTickNs) {
      stolen_seen_ns_ = now_ns;
      stolen_ns_ = stolen_.Ns();
    }
    return waits_.Ns() + stolen_ns_;
  }

  // "0.20 0.18 0.12 1/80 11206": of 80 threads one is ready to run, the calling one.
  bool OthersReady() override {
    char text[128];
    const ssize_t size = loadavg_ < 0 ? -1 : pread(loadavg_, text, sizeof(text), 0);
    if (size <= 0) return false;
    absl::string_view rest(text, static_cast<size_t>(size));
    rest = rest.substr(0, rest.find('/'));
    const size_t blank = rest.rfind(' ');
    int ready = 0;
    return blank != absl::string_view::npos && absl::SimpleAtoi(rest.substr(blank + 1), &ready) &&
           ready > 1;
  }

 private:
  const int loadavg_;
  bool has_service_ = false;
  clockid_t service_clock_ = CLOCK_MONOTONIC;
  ThreadWaits waits_;
  const StolenTime stolen_;
  int64_t stolen_ns_ = 0;
  int64_t stolen_seen_ns_ = 0;
};

}  // namespace

std::unique_ptr<Machine> NewLinuxMachine(pid_t service, const std::string& stat_path) {
  return std::make_unique<LinuxMachine>(service, stat_path);
}

}  // namespace warpcall::inspect
