#include "server/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/log.h"

namespace warpcall {
namespace {

// GNU's OpenMP, on which oneDNN runs, lets its threads spin for 5 to 20 ms after each primitive,
// and whoever is measured next waits for their cores. So many spins, 15 us on a Zen 5, reach from
// one loop of a primitive to the next. It reads this when it is loaded, so only processes that are
// started get it from here.
constexpr char kOpenMpSpins[] = "GOMP_SPINCOUNT=1000";

// Some 60 of an idle server's own, kBeyondInherited and what is passed on, 32 connections.
constexpr rlim_t kDescriptorsMin = 256;

struct Processes {
  absl::Mutex mutex;
  absl::btree_set<int> open ABSL_GUARDED_BY(mutex);  // OpenProcess's descriptors
};
Processes& TheProcesses() {
  static Processes& processes = *new Processes;
  return processes;
}

// A server's flags are not its processes': those get what they need as arguments. Nor is its
// service manager, which hears of the server alone. What the user
// says of OpenMP's waiting stands.
std::vector<char*> EnvironmentForProcesses() {
  std::vector<char*> kept;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!absl::StartsWith(*variable, kFlagVariablePrefix) &&
        !absl::StartsWith(*variable, "NOTIFY_SOCKET="))
      kept.push_back(*variable);
  if (getenv("GOMP_SPINCOUNT") == nullptr && getenv("OMP_WAIT_POLICY") == nullptr)
    kept.push_back(const_cast<char*>(kOpenMpSpins));
  kept.push_back(nullptr);
  return kept;
}

}  // namespace

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

int MoveBeyondInherited(int fd) {
  const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, kBeyondInherited);
  if (fd >= 0) close(fd);
  return moved;
}

absl::StatusOr<pid_t> SpawnSelf(const std::vector<std::string>& arguments,
                                const std::vector<int>& inherited) {
  signal(SIGCHLD, SIG_IGN);  // the system forgets processes that end
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int number : {SIGCHLD, SIGPIPE, SIGXFSZ}) sigaddset(&defaults, number);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (size_t i = 0; i < inherited.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, inherited[i], kInheritedFirst + static_cast<int>(i));
  posix_spawn_file_actions_addclosefrom_np(&actions,
                                           kInheritedFirst + static_cast<int>(inherited.size()));
  const std::string level = absl::StrCat("--log_level=", LogLevelName(CurrentLogLevel()));
  const std::string format = absl::StrCat("--log_format=", LogFormatName(CurrentLogFormat()));
  std::vector<char*> pointers = {const_cast<char*>("warpcalld")};
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(const_cast<char*>(level.c_str()));
  pointers.push_back(const_cast<char*>(format.c_str()));
  pointers.push_back(nullptr);
  std::vector<char*> environment = EnvironmentForProcesses();
  pid_t pid;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, pointers.data(),
                                environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return pid;
  return absl::ResourceExhaustedError(
      absl::StrCat("no process for ", arguments.front(), ": ", strerror(error)));
}

int OpenProcess(pid_t pid, int socket) {
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd other_end = {socket, 0, 0};
  if (process < 0) return -1;
  if (poll(&other_end, 1, 0) != 0) {
    close(process);
    return -1;
  }
  absl::MutexLock lock(&TheProcesses().mutex);
  TheProcesses().open.insert(process);
  return process;
}

void CloseProcess(int process) {
  absl::MutexLock lock(&TheProcesses().mutex);
  TheProcesses().open.erase(process);
  close(process);
}

void KillProcess(int process) { syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0); }

void KillProcesses() {
  absl::MutexLock lock(&TheProcesses().mutex);
  for (const int process : TheProcesses().open) KillProcess(process);
}

void CloseUnexpectedDescriptors() { close_range(STDERR_FILENO + 1, kInheritedFirst - 1, 0); }

}  // namespace warpcall
