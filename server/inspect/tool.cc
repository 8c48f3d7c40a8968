#include "server/inspect/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/common/human_figures.h"
#include "proto/common/status_macros.h"
#include "proto/common/steady_wait.h"

namespace warpcall::inspect {
namespace {

constexpr char kToolkitFolder[] = "/usr/local/cuda/bin";

// A running program, and the read end of its output pipe. The destructor kills a program that has
// not ended before.
class Running {
 public:
  static absl::StatusOr<Running> Start(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      return absl::InternalError(absl::StrCat("no pipe for ", command[0], ": ", strerror(errno)));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    // Drops the warnings, of which these tools have many.
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::vector<char*> arguments;
    for (const std::string& argument : command)
      arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    pid_t pid = -1;
    // This process ignores SIGXFSZ (main.cc).
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGXFSZ);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int error =
        posix_spawn(&pid, command[0].c_str(), &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0) return Running(pid, ends[0]);
    close(ends[0]);
    return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", strerror(error)));
  }
  Running(Running&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), output_(std::exchange(other.output_, -1)) {}
  Running& operator=(Running&&) = delete;
  ~Running() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Await();
    }
    if (output_ >= 0) close(output_);
  }

  int output() const { return output_; }
  // Waits for the program's end. True if it succeeded.
  bool Await() {
    int status = 0;
    pid_t waited;
    do {
      waited = waitpid(pid_, &status, 0);
    } while (waited < 0 && errno == EINTR);
    pid_ = -1;
    return waited > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  Running(pid_t pid, int output) : pid_(pid), output_(output) {}

  pid_t pid_;
  int output_;
};

// Cuts the output into lines.
class LineReader {
 public:
  LineReader(int fd, const ToolLimits& limits)
      : fd_(fd), limits_(limits), give_up_(SteadyAfter(limits.time)) {}

  // False at the end. `line` lives until the next call.
  absl::StatusOr<bool> Next(absl::string_view* line) {
    for (;;) {
      const absl::string_view rest = absl::string_view(text_).substr(begin_);
      const size_t end = rest.find('\n');
      if (end != absl::string_view::npos || (at_end_ && !rest.empty())) {
        *line = rest.substr(0, end);
        begin_ = std::min(text_.size(), begin_ + line->size() + 1);
        return true;
      }
      if (at_end_) return false;
      if (rest.size() > limits_.line_bytes)
        return absl::ResourceExhaustedError(
            absl::StrCat("printed a line of more than ", limits_.line_bytes, " bytes, the limit"));
      text_.erase(0, begin_);
      begin_ = 0;
      RETURN_IF_ERROR(ReadMore());
    }
  }

 private:
  absl::Status ReadMore() {
    const absl::Duration left = UntilSteady(give_up_);
    if (left <= absl::ZeroDuration())
      return absl::DeadlineExceededError(absl::StrCat(
          "took longer than the limit of ", HumanTime(absl::ToDoubleNanoseconds(limits_.time))));
    pollfd watched = {fd_, POLLIN, 0};
    poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (watched.revents == 0) return absl::OkStatus();
    char piece[1 << 16];
    const ssize_t count = read(fd_, piece, sizeof(piece));
    if (count > 0) text_.append(piece, static_cast<size_t>(count));
    at_end_ = count == 0 || (count < 0 && errno != EINTR);
    return absl::OkStatus();
  }

  const int fd_;
  const ToolLimits& limits_;
  const SteadyTime give_up_;
  std::string text_;
  size_t begin_ = 0;  // where the next line begins
  bool at_end_ = false;
};

// Lets waitpid learn how a process has ended, as long as it lives. A process that has started a
// process::Child ignores SIGCHLD, and the system then forgets processes that end.
class ToldOfEnds {
 public:
  ToldOfEnds() : before_(std::signal(SIGCHLD, SIG_DFL)) {}
  ~ToldOfEnds() { std::signal(SIGCHLD, before_); }
  ToldOfEnds(const ToldOfEnds&) = delete;
  ToldOfEnds& operator=(const ToldOfEnds&) = delete;

 private:
  void (*const before_)(int);
};

absl::Status TakeLines(int fd, const ToolLimits& limits,
                       absl::FunctionRef<absl::Status(absl::string_view line)> take) {
  LineReader reader(fd, limits);
  for (;;) {
    absl::string_view line;
    ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) return absl::OkStatus();
    RETURN_IF_ERROR(take(line));
  }
}

}  // namespace

absl::StatusOr<std::string> FindTool(absl::string_view name,
                                     absl::Span<const std::string> folders) {
  for (const std::string& folder : folders) {
    std::string path = absl::StrCat(folder, "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return absl::NotFoundError(
      absl::StrCat(name, " is not installed; it was looked for in ", absl::StrJoin(folders, ", ")));
}

std::vector<std::string> ToolFolders() {
  const char* const path = std::getenv("PATH");
  std::vector<std::string> folders =
      absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty());
  if (std::find(folders.begin(), folders.end(), kToolkitFolder) == folders.end())
    folders.push_back(kToolkitFolder);
  return folders;
}

absl::Status RunTool(const std::vector<std::string>& command, const ToolLimits& limits,
                     absl::FunctionRef<absl::Status(absl::string_view line)> take) {
  const ToldOfEnds told;
  ASSIGN_OR_RETURN(Running running, Running::Start(command));
  if (const absl::Status taken = TakeLines(running.output(), limits, take); !taken.ok())
    return absl::Status(taken.code(), absl::StrCat(command[0], " ", taken.message()));
  if (running.Await()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(command[0], " failed"));
}

}  // namespace warpcall::inspect
