#include "server/system/thread_limits.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/common/status_macros.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/runtime/cpu/control_group.h"

namespace warpcall {
namespace {

constexpr int kNoThread = 1;
constexpr size_t kStackBytes = 256 << 10;

// Some 60 of an idle server's own, 160 numbers for those that its processes get, 32 connections.
constexpr rlim_t kDescriptorsMin = 256;

// Beside those that processors are counted for: main, log, housekeeper, watches of three files and
// of the start, refusals, inspector, self-test, HTTP, spans, GPU monitor.
constexpr int kOwnThreads = 14;
// gRPC's timers, resolver, event engine and the server of its reflection, as far as they do not go
// by processors.
constexpr int kGrpcThreads = 8;
// Threads of a team for a small job, which runs on a callback's thread. Its work, 256 KiB of a
// matrix product, does not repay more threads.
constexpr int kSmallTeam = 8;
// Threads of each of gRPC's two executors, at most. gRPC allows twice as many as cores, and one
// more for a long queue. They do handshakes and name look-ups; a server has few of these.
constexpr int kExecutorThreadsMax = 16;
// Threads of an inspection's or a self-test's process: main, log, its server's watch.
constexpr int kChildThreads = 4;

// Threads that gRPC calls callbacks on (transport/grpc_1_51/pollers.h).
int CallbackThreads(int cores) { return std::clamp(cores / 2, 2, 16); }

void* AwaitEnd(void* end) {
  static_cast<absl::Notification*>(end)->WaitForNotification();
  return nullptr;
}

[[noreturn]] void EndWithReason() {
  std::string what = "an exception that nobody handles";
  bool is_thread = false;
  try {
    if (const std::exception_ptr thrown = std::current_exception(); thrown != nullptr)
      std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    is_thread = error.code() == std::errc::resource_unavailable_try_again;
    what = error.what();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  if (is_thread) what = absl::StrCat("cannot start a thread: ", what, ": ", ThreadLimits());
  Say(STDERR_FILENO, LogLevel::kError, what);
  if (is_thread) EndProcess(kNoThread);
  FlushLog();
  abort();
}

}  // namespace

int ThreadsNeeded(const ThreadNeeds& needs) {
  const int others = needs.cpus - 1;  // in a pool or a team, besides the calling thread
  const int lanes = needs.lanes + 1;
  const int callbacks = CallbackThreads(needs.cores);
  const int pools = others + std::max(0, needs.copy_threads - 1);
  // OpenMP keeps a team for each thread that asks for one: lanes, and those that run small jobs.
  const int teams = lanes * others + callbacks * std::min(others, kSmallTeam - 1);
  const int grpc = kGrpcThreads + callbacks + std::clamp(needs.cores, 2, 16) +
                   2 * std::min(2 * needs.cores, kExecutorThreadsMax);
  const int worker = kChildThreads + lanes + others + lanes * others;
  return kOwnThreads + pools + lanes + teams + grpc + needs.cpu_workers * worker;
}

int InspectionThreadsNeeded(const ThreadNeeds& needs) {
  // Its device's pool, the one that it compares by, and a team.
  return kChildThreads + 3 * (needs.cpus - 1);
}

absl::Status CheckThreadsFor(const ThreadNeeds& needs) {
  const int server = ThreadsNeeded(needs);
  const absl::Status all = CheckThreads(server + InspectionThreadsNeeded(needs));
  if (all.ok()) return all;
  RETURN_IF_ERROR(CheckThreads(server));
  Log(LogLevel::kWarning, "Benchmark, Tune, Profile and Describe may lack threads",
      {{"error", all.message()}});
  return absl::OkStatus();
}

absl::Status CheckThreads(int threads) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  absl::Notification end;
  std::vector<pthread_t> made;
  const absl::Cleanup join = [&] {
    end.Notify();
    for (const pthread_t thread : made) pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  };
  made.reserve(static_cast<size_t>(threads));
  while (static_cast<int>(made.size()) < threads) {
    pthread_t thread;
    if (const int error = pthread_create(&thread, &attributes, AwaitEnd, &end); error != 0)
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot start thread ", made.size() + 1, " of the ", threads,
                       " that a server may need: ", strerror(error), ": ", ThreadLimits()));
    made.push_back(thread);
  }
  return absl::OkStatus();
}

std::string ThreadLimits() {
  rlimit limit = {};
  const bool is_limited = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const int64_t tasks = TaskLimit();
  return absl::StrCat("RLIMIT_NPROC (ulimit -u), for all processes of this user, is ",
                      is_limited ? absl::StrCat(limit.rlim_cur) : "unlimited",
                      ", pids.max of the control group is ",
                      tasks < 0 ? "max" : absl::StrCat(tasks));
}

void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status CheckDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= kDescriptorsMin)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the hard limit of open files (ulimit -Hn) is ", limit.rlim_max,
                   "; the server needs ", kDescriptorsMin, ", and one more for each connection"));
}

void ExplainRefusedThreads() { std::set_terminate(EndWithReason); }

}  // namespace warpcall
