// The processes that a process has started.
#pragma once

#include <dirent.h>
#include <sys/types.h>
#include <time.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace warpcall::testing {

// Empty, or a part, when the process is gone by then: iterators over the stream would throw.
inline std::string ReadProcFile(pid_t pid, const char* name) {
  std::ostringstream text;
  text << std::ifstream(absl::StrCat("/proc/", pid, "/", name)).rdbuf();
  return text.str();
}

// User and system time of all of the process's threads since it began; its own children's not.
inline double CpuSecondsOf(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) == 0) clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Those that are not forgotten yet, ended ones included.
inline std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  DIR* const folder = opendir("/proc");
  while (const dirent* entry = readdir(folder)) {
    pid_t pid;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const std::string stat = ReadProcFile(pid, "stat");  // "PID (NAME) STATE PARENT ..."
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) continue;
    std::istringstream rest(stat.substr(name_end + 1));
    char state;
    pid_t its_parent;
    if (rest >> state >> its_parent && its_parent == parent) children.push_back(pid);
  }
  closedir(folder);
  return children;
}

// The one among them that was started with `word`; -1: there is none.
inline pid_t ChildWith(pid_t parent, const std::string& word) {
  for (const pid_t child : ChildrenOf(parent))
    if (absl::StrContains(ReadProcFile(child, "cmdline"), word)) return child;
  return -1;
}

}  // namespace warpcall::testing
