#include "client/cli/bench/png.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace warpcall::cli {
namespace {

constexpr char kProgram[] = "rsvg-convert";

// What a program that is not a shell's finds by its name; empty: nothing.
std::string FindProgram() {
  const char* const folders = std::getenv("PATH");
  if (folders == nullptr) return "";
  for (const absl::string_view folder : absl::StrSplit(folders, ':', absl::SkipEmpty())) {
    std::string path = absl::StrCat(folder, "/", kProgram);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

absl::Status Failed(absl::string_view what) {
  return absl::InternalError(absl::StrCat(kProgram, ": ", what));
}

bool WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(file, bytes.data(), bytes.size());
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return lseek(file, 0, SEEK_SET) == 0;
}

std::string ReadAll(int file) {
  std::string bytes(static_cast<size_t>(lseek(file, 0, SEEK_END)), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got =
        pread(file, bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

// Runs it from one file to another; the wait status, or -1 when it did not start.
int Run(const std::string& path, int in, int out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy = [&] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  char name[] = "rsvg-convert", zoom[] = "--zoom=2";
  char* words[] = {name, zoom, nullptr};
  pid_t pid;
  if (posix_spawn(&pid, path.c_str(), &actions, nullptr, words, environ) != 0) return -1;
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

absl::Status CheckPng() {
  if (!FindProgram().empty()) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("a picture as .png needs the program ", kProgram,
                   " in PATH (Debian's and Ubuntu's package librsvg2-bin); .svg needs nothing"));
}

absl::StatusOr<std::string> ToPng(const std::string& svg) {
  const int in = memfd_create("svg", MFD_CLOEXEC);
  const int out = memfd_create("png", MFD_CLOEXEC);
  const absl::Cleanup close_both = [&] {
    close(in);
    close(out);
  };
  if (in < 0 || out < 0 || !WriteAll(in, svg)) return Failed("no memory for the picture");
  const int status = Run(FindProgram(), in, out);
  if (status != 0)
    return Failed(WIFEXITED(status) ? absl::StrCat("exit status ", WEXITSTATUS(status))
                                    : "it did not run to its end");
  std::string png = ReadAll(out);
  if (png.empty()) return Failed("it wrote nothing");
  return png;
}

}  // namespace warpcall::cli
