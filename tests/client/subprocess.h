// Runs a program as a shell would and keeps what it said.
#pragma once

#include <string>

namespace warpcall::testing {

struct ProgramResult {
  int exit_status = -1;  // -1 when a signal ended it
  std::string out;
  std::string err;
};

// `command` is a line for the shell, without redirections.
ProgramResult RunProgram(const std::string& command);

}  // namespace warpcall::testing
