// Finds out from the system, not by a stopwatch, that a thread has come to rest.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {

// True when `thread` of this process sleeps; false when it runs, or would if it got a core. One
// that is about to take a mutex may rest for a moment.
inline bool ThreadRests(pid_t thread) {
  std::ostringstream text;
  text << std::ifstream(absl::StrCat("/proc/self/task/", thread, "/stat")).rdbuf();
  const std::string stat = text.str();
  const size_t name_end = stat.rfind(") ");  // "TID (NAME) STATE ..."
  return name_end != std::string::npos && stat[name_end + 2] == 'S';
}

}  // namespace warpcall::testing
