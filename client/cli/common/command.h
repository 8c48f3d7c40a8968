// What the subcommands of `warpcall` share. Each has a file of its own and one Add...Command here.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace warpcall::cli {

// Exit statuses of every subcommand.
inline constexpr int kExitOk = 0;
inline constexpr int kExitRefused = 1;  // by the server, or the server can't be reached
inline constexpr int kExitUsage = 2;    // the command line, or a file that it names

struct Globals {
  std::string server;
  bool json = false;
};

// `run` does the work once the command line has been parsed and names `app`; returns the exit
// status.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

// `globals` outlives the command and is filled in by the time it runs.
Command AddKernelsCommand(CLI::App* root, const Globals& globals);
Command AddDevicesCommand(CLI::App* root, const Globals& globals);
Command AddRunCommand(CLI::App* root, const Globals& globals);
Command AddBenchCommand(CLI::App* root, const Globals& globals);
Command AddProfileCommand(CLI::App* root, const Globals& globals);
Command AddHealthCommand(CLI::App* root, const Globals& globals);
Command AddLoadCommand(CLI::App* root, const Globals& globals);

// Print `CODE: message` to stderr and return the exit status.
int Refused(const absl::Status& status);
int UsageError(const absl::Status& status);

}  // namespace warpcall::cli
