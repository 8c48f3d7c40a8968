// The programs that tests start, and the result of a run. They come from the build that the tests
// belong to or, by the environment, from another one, so that tests of processes are compiled once
// and run against sanitized programs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

// Path of the program `name` (warpcalld, warpcall, digits): in $WARPCALL_TEST_BIN_DIR if that is
// set, or else in bin/ of this build.
std::string ProgramPath(absl::string_view name);

// Returns true if these programs have AddressSanitizer, by $WARPCALL_TEST_SANITIZED=1: they take
// several times as long, and keep freed memory in a quarantine of 256 MiB beside red zones.
bool ProgramsAreSanitized();

struct ProgramResult {
  int exit_status = -1;  // -1 when a signal ended it
  std::string out;
  std::string err;
};

// Runs `command`, a line for the shell without redirections. `err_path`, unless empty: a file that
// gets its stderr while it runs.
ProgramResult RunProgram(const std::string& command, const std::string& err_path = "");

// Returns true if tests measure latencies long enough to compare them, and compare them: at night,
// on an otherwise idle machine, by $WARPCALL_TEST_LATENCIES=1. False for sanitized programs, which
// are slower by themselves.
bool LatenciesAreCompared();

}  // namespace warpcall::testing
