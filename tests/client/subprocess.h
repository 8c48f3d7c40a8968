// Runs a program as a shell would and keeps what it said.
#pragma once

#include <string>

namespace warpcall::testing {

struct ProgramResult {
  int exit_status = -1;  // -1 when a signal ended it
  std::string out;
  std::string err;
};

// `command` is a line for the shell, without redirections. `err_path`, unless empty: where what it
// says on stderr can be read while it runs.
ProgramResult RunProgram(const std::string& command, const std::string& err_path = "");

// All of a file; "" when there is none.
std::string ReadFile(const std::string& path);

}  // namespace warpcall::testing
