#include "server/inspect/host_meter.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace warpcall::inspect {
namespace {

// Bytes that a miss of the last cache reads from memory, on every CPU that the server is built for.
constexpr int64_t kCacheLineBytes = 64;

struct Event {
  const char* name;
  uint64_t config;  // a PERF_TYPE_HARDWARE event
  int64_t bytes;    // moved by one event
};
constexpr Event kEvents[] = {{"instructions", PERF_COUNT_HW_INSTRUCTIONS, 0},
                             {"cycles", PERF_COUNT_HW_CPU_CYCLES, 0},
                             {"cache misses", PERF_COUNT_HW_CACHE_MISSES, kCacheLineBytes}};

// Excludes the kernel's share, which fewer systems permit; includes threads that are yet to
// start.
perf_event_attr AttributesOf(const Event& event) {
  perf_event_attr attributes = {};
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.size = sizeof(attributes);
  attributes.config = event.config;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  return attributes;
}

int OpenPerfEvent(const perf_event_attr& attributes, pid_t thread) {
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, thread, /*cpu=*/-1,
                                  /*group_fd=*/-1, PERF_FLAG_FD_CLOEXEC));
}

std::string WhyNot(int error, const char* paranoid_path) {
  const std::string said = absl::StrCat("perf_event_open: ", strerror(error));
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP)
    return absl::StrCat("this machine has none or hides them, as virtual machines do (", said, ")");
  if (error != EACCES && error != EPERM) return said;
  std::string level;
  std::ifstream(paranoid_path) >> level;
  return absl::StrCat("they are not permitted (", said, "); kernel.perf_event_paranoid is ",
                      level.empty() ? "not known" : level,
                      ", 2 or less permits them unless a container's seccomp profile does not");
}

std::vector<pid_t> Threads() {
  std::vector<pid_t> threads;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder)) {
    pid_t thread;
    if (absl::SimpleAtoi(entry->d_name, &thread)) threads.push_back(thread);
  }
  closedir(folder);
  return threads;
}

// The clock of a thread's time on a core, as pthread_getcpuclockid makes it for its own threads.
clockid_t ClockOf(pid_t thread) {
  constexpr unsigned kThreadsScheduledTime = 6;
  return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | kThreadsScheduledTime);
}

// Returns nothing for a thread that is gone.
std::optional<int64_t> RunningNs(pid_t thread) {
  timespec time;
  if (clock_gettime(ClockOf(thread), &time) != 0) return std::nullopt;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t WaitingNs(pid_t thread) {
  // Time running, time waiting, number of runs.
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/schedstat"));
  int64_t running_ns;
  int64_t waiting_ns;
  return file >> running_ns >> waiting_ns ? waiting_ns : 0;
}

rusage Usage() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

int64_t PageFaults(const rusage& usage) { return usage.ru_minflt + usage.ru_majflt; }
int64_t ContextSwitches(const rusage& usage) { return usage.ru_nvcsw + usage.ru_nivcsw; }

}  // namespace

PerfEvents PerfEvents::OfSystem() {
  return {OpenPerfEvent, "/proc/sys/kernel/perf_event_paranoid"};
}

// Reads its own thread's time last here and first in Stop, to exclude the meter's
// work.
HostMeter::HostMeter(const PerfEvents& events) {
  const std::vector<pid_t> threads = Threads();
  OpenCounters(events, threads);
  for (const pid_t thread : threads)
    begun_[thread] = {RunningNs(thread).value_or(0), WaitingNs(thread)};
  const rusage usage = Usage();
  page_faults_ = PageFaults(usage);
  context_switches_ = ContextSwitches(usage);
  ThreadTime& own = begun_[gettid()];
  for (const Counter& counter : counters_) ioctl(counter.file, PERF_EVENT_IOC_RESET, 0);
  own.running_ns = RunningNs(gettid()).value_or(0);
}

HostMeter::~HostMeter() {
  for (const Counter& counter : counters_) close(counter.file);
}

HostActivity HostMeter::Stop() {
  const pid_t own = gettid();
  const std::optional<int64_t> own_running_ns = RunningNs(own);
  for (const Counter& counter : counters_) ioctl(counter.file, PERF_EVENT_IOC_DISABLE, 0);
  const rusage usage = Usage();
  HostActivity activity;
  for (const pid_t thread : Threads()) {
    const std::optional<int64_t> running_ns = thread == own ? own_running_ns : RunningNs(thread);
    if (!running_ns.has_value()) continue;
    const ThreadTime& begun = begun_[thread];  // zeros if it started since
    const ThreadTime time = {*running_ns - begun.running_ns, WaitingNs(thread) - begun.waiting_ns};
    if (time.running_ns > 0) activity.threads.push_back(time);
  }
  activity.counters_unavailable = std::move(counters_unavailable_);
  AddHardwareCounts(&activity);
  activity.counts.push_back({"page faults", PageFaults(usage) - page_faults_});
  activity.counts.push_back({"context switches", ContextSwitches(usage) - context_switches_});
  return activity;
}

// Counts each event for every thread or for none.
void HostMeter::OpenCounters(const PerfEvents& events, const std::vector<pid_t>& threads) {
  std::vector<std::string> missing;
  std::string why;
  for (int event = 0; event < static_cast<int>(std::size(kEvents)); ++event) {
    const size_t before = counters_.size();
    int error = 0;
    for (const pid_t thread : threads) {
      const int file = events.open(AttributesOf(kEvents[event]), thread);
      if (file >= 0) {
        counters_.push_back({event, file});
      } else if (errno != ESRCH) {  // the thread still exists
        error = errno;
        break;
      }
    }
    if (error == 0) continue;
    for (; counters_.size() > before; counters_.pop_back()) close(counters_.back().file);
    missing.push_back(kEvents[event].name);
    if (why.empty()) why = WhyNot(error, events.paranoid_path);
  }
  if (!missing.empty())
    counters_unavailable_ = absl::StrCat("no ", absl::StrJoin(missing, ", "), ": ", why);
}

// With more events than counters, each event was counted for a part of the time: the count is
// scaled up to the whole. An event that never got a counter is not measured.
void HostMeter::AddHardwareCounts(HostActivity* activity) const {
  struct Value {
    uint64_t count;
    uint64_t enabled_ns;
    uint64_t running_ns;
  };
  double counts[std::size(kEvents)] = {};
  bool opened[std::size(kEvents)] = {};
  bool counted[std::size(kEvents)] = {};
  for (const Counter& counter : counters_) {
    opened[counter.event] = true;
    Value value;
    if (read(counter.file, &value, sizeof(value)) != static_cast<ssize_t>(sizeof(value)) ||
        value.running_ns == 0)
      continue;
    counted[counter.event] = true;
    counts[counter.event] += static_cast<double>(value.count) *
                             static_cast<double>(value.enabled_ns) /
                             static_cast<double>(value.running_ns);
  }
  std::vector<std::string> missing;
  for (size_t event = 0; event < std::size(kEvents); ++event) {
    if (opened[event] && !counted[event]) missing.push_back(kEvents[event].name);
    if (!counted[event]) continue;
    const auto count = static_cast<int64_t>(counts[event]);
    activity->counts.push_back({kEvents[event].name, count, count * kEvents[event].bytes});
  }
  if (!missing.empty())
    absl::StrAppend(&activity->counters_unavailable,
                    activity->counters_unavailable.empty() ? "" : "; ", "no ",
                    absl::StrJoin(missing, ", "), ": none of this machine's counters was free");
}

}  // namespace warpcall::inspect
