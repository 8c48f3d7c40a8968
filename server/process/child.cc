#include "server/process/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/log/log.h"
#include "server/process/parent.h"
#include "server/system/housekeeper.h"

namespace warpcall::process {
namespace {

// Descriptors are passed from here on, so that none of them takes another's number.
constexpr int kBeyondInherited = kInheritedFirst + 1 + static_cast<int>(Child::kDescriptorsMax);

// GNU's OpenMP, on which oneDNN runs, lets its threads spin for 5 to 20 ms after each primitive,
// which delays the next measurement on their cores. This number of spins, 15 us on a Zen 5, bridges
// the gap between two loops of a primitive. OpenMP reads the variable when it is loaded, so only
// started processes get it from here.
constexpr char kOpenMpSpins[] = "GOMP_SPINCOUNT=1000";

constexpr absl::Duration kEndTime = absl::Seconds(1);

struct Processes {
  absl::Mutex mutex;
  absl::btree_set<int> open ABSL_GUARDED_BY(mutex);  // pidfds
};
Processes& TheProcesses() {
  static Processes& processes = *new Processes;
  return processes;
}

// Returns a descriptor of the process at the other end of the channel, -1 for none: it has ended,
// and its id may be another's.
int OpenProcess(const Channel& channel, pid_t pid) {
  if (pid <= 0) return -1;
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  pollfd other_end = {channel.socket(), 0, 0};
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

// Returns whether the process ends within the timeout.
bool AwaitProcess(int process, absl::Duration timeout) {
  pollfd watched = {process, POLLIN, 0};
  int ready;
  do {
    ready = poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Drops the variables of the server alone. Flags reach children as arguments, and only the server
// talks to its service manager. The user's own settings of how OpenMP waits stay in force.
std::vector<char*> EnvironmentForChildren() {
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

// Starts this program with descriptors at kBeyondInherited or above, which it finds at
// kInheritedFirst and on. Once the process has ended, the returned id may be reused: the process is
// not waited for.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& words,
                            absl::Span<const Descriptor> descriptors) {
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
  int number = kInheritedFirst;
  for (const Descriptor& descriptor : descriptors)
    posix_spawn_file_actions_adddup2(&actions, descriptor.get(), number++);
  posix_spawn_file_actions_addclosefrom_np(&actions, number);
  std::vector<char*> pointers = {const_cast<char*>("warpcalld")};
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  std::vector<char*> environment = EnvironmentForChildren();
  pid_t pid;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, pointers.data(),
                                environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return pid;
  return absl::ResourceExhaustedError(
      absl::StrCat("no process for ", words.front(), ": ", strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(RoleFlags flags,
                                                    absl::Span<const int> descriptors) {
  WARPCALL_CHECK(descriptors.size() <= kDescriptorsMax, descriptors.size());
  std::pair<Descriptor, Descriptor> sockets;
  ASSIGN_OR_RETURN(sockets, MakeSockets(SOCK_STREAM));
  std::vector<int> theirs = {sockets.second.get()};
  theirs.insert(theirs.end(), descriptors.begin(), descriptors.end());
  std::vector<Descriptor> passed;
  for (const int fd : theirs) {
    passed.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, kBeyondInherited));
    if (passed.back().get() < 0)
      return absl::ResourceExhaustedError(
          absl::StrCat("no descriptors for another process: ", strerror(errno)));
  }
  sockets.second = Descriptor();  // so that the child's end is seen
  flags.log_level = std::string(LogLevelName(CurrentLogLevel()));
  flags.log_format = std::string(LogFormatName(CurrentLogFormat()));
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(ToWords(flags), passed));
  passed.clear();
  return std::make_unique<Child>(Channel(std::move(sockets.first)), pid);
}

Child::Child(Channel channel, pid_t pid)
    : channel_(std::move(channel)), pid_(pid), process_(OpenProcess(channel_, pid)) {}

Child::~Child() {
  channel_.Shutdown();
  if (process_ < 0) return;
  // The process has this long to end by itself; the system needs the time to free its memory.
  RunLater("child", kEndTime, [process = process_] {
    if (!AwaitProcess(process, absl::ZeroDuration())) KillProcess(process);
    CloseProcess(process);
  });
}

int64_t Child::CpuNs() const {
  clockid_t clock;
  timespec time = {};
  if (pid_ <= 0 || clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0)
    return 0;
  // A process closes its sockets before its id is free: until then what was read was its own.
  pollfd end = {channel_.socket(), 0, 0};
  if (poll(&end, 1, 0) < 0 || (end.revents & POLLHUP) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void Child::Kill() const {
  if (process_ >= 0) KillProcess(process_);
  channel_.Shutdown();
}

void Child::AwaitEnd(absl::Duration timeout) const {
  if (process_ >= 0) AwaitProcess(process_, timeout);
}

void KillChildren() {
  absl::MutexLock lock(&TheProcesses().mutex);
  for (const int process : TheProcesses().open) KillProcess(process);
}

}  // namespace warpcall::process
