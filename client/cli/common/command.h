// Types shared by the subcommands of `warpcall`. Each of them has one Add...Command here.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/cli/common/options.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// Exit statuses of every subcommand.
inline constexpr int kExitOk = 0;
inline constexpr int kExitRefused = 1;  // by the server, or it or stdout can't be reached
inline constexpr int kExitUsage = 2;    // the command line, or a file that it names

struct Globals {
  std::string server;
  bool json = false;
  bool verbose = false;
  client::Credentials credentials = {};
  std::string session = {};
};

// The version of this program: "0.1.0".
const char* ClientVersion();

// Returns the options for a Client; --verbose reports each of the client's calls on stderr.
client::ClientOptions OptionsOf(const Globals& globals);

// `run` does the work once the command line has been parsed and names the command; returns the exit
// status.
struct Command {
  Arguments arguments;
  std::function<int()> run;
  bool asks_server = true;  // at Globals::server
};

// A command whose `options`, an Options of `arguments`, are given to `run`.
template <typename Options>
Command MakeCommand(const Arguments& arguments, const Globals& globals,
                    int (*run)(const Globals& globals, const Options& options)) {
  const auto options = std::make_shared<Options>(arguments);
  return {arguments, [&globals, options, run] { return run(globals, *options); }};
}

// `globals` outlives the command and is filled in by the time it runs.
Command AddKernelsCommand(const Arguments& root, const Globals& globals);
Command AddDevicesCommand(const Arguments& root, const Globals& globals);
Command AddRunCommand(const Arguments& root, const Globals& globals);
Command AddFusedCommand(const Arguments& root, const Globals& globals);
Command AddGraphCommand(const Arguments& root, const Globals& globals);
Command AddBenchCommand(const Arguments& root, const Globals& globals);
Command AddTuneCommand(const Arguments& root, const Globals& globals);
Command AddCompareCommand(const Arguments& root, const Globals& globals);
Command AddPushCommand(const Arguments& root, const Globals& globals);
Command AddProfileCommand(const Arguments& root, const Globals& globals);
Command AddDescribeCommand(const Arguments& root, const Globals& globals);
Command AddHealthCommand(const Arguments& root, const Globals& globals);
Command AddLoadCommand(const Arguments& root, const Globals& globals);
Command AddTopCommand(const Arguments& root, const Globals& globals);
Command AddPutCommand(const Arguments& root, const Globals& globals);
Command AddGetCommand(const Arguments& root, const Globals& globals);
Command AddFreeCommand(const Arguments& root, const Globals& globals);
Command AddTensorsCommand(const Arguments& root, const Globals& globals);
Command AddVersionCommand(const Arguments& root, const Globals& globals);
Command AddCompletionCommand(const Arguments& root);

// Print `CODE: message` to stderr, or JSON (output.h), and return the exit status.
int Refused(const absl::Status& status);
int UsageError(const absl::Status& status);

}  // namespace warpcall::cli
