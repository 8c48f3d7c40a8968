// Whether a thread has come to rest, told by the system and not by a stopwatch.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {

// True when `thread` of this process sleeps; false when it runs, or would if it got a core. One
// that is about to take a mutex may rest for a moment.
inline bool ThreadRests(pid_t thread) {
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/stat"));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = stat.rfind(") ");  // "TID (NAME) STATE ..."
  return name_end != std::string::npos && stat[name_end + 2] == 'S';
}

}  // namespace warpcall::testing
