#include "server/spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace warpcall {

int MoveAway(int fd) {
  const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, kAway);
  if (fd >= 0) close(fd);
  return moved;
}

absl::Status SpawnSelf(const std::vector<std::string>& arguments,
                       const std::vector<int>& inherited) {
  signal(SIGCHLD, SIG_IGN);  // the system forgets processes that end
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (size_t i = 0; i < inherited.size(); ++i)
    posix_spawn_file_actions_adddup2(&actions, inherited[i], kInheritedFirst + static_cast<int>(i));
  std::vector<char*> pointers = {const_cast<char*>("warpcalld")};
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t pid;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no process for ", arguments.front(), ": ", strerror(error)));
}

}  // namespace warpcall
