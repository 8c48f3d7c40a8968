// warpcall: the command line of a Warpcall server.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "client/cli/common/command.h"
#include "client/cli/common/credentials.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cli/completion.h"

namespace warpcall::cli {
namespace {

constexpr char kServer[] = "127.0.0.1:8470";
constexpr char kServerVariable[] = "WARPCALL_SERVER";
constexpr char kSessionVariable[] = "WARPCALL_SESSION";

// Before the command line is read: what is wrong with it is said in the form that it asks for.
bool WantsJson(absl::Span<const std::string> words) {
  return absl::c_any_of(
      words, [](const std::string& word) { return word == "--json" || word == "--json=true"; });
}

// warpcall help: what --help prints. `command_line` outlives the command.
Command AddHelpCommand(const Arguments& root, const CommandLine& command_line) {
  const Arguments arguments =
      root.AddSubcommand("help", "Show help for the program or for a command");
  const auto command = std::make_shared<std::string>();
  arguments.Add("command", command.get(), "Command to show help for; default: the whole program");
  return {arguments,
          [&command_line, command] {
            const auto help = command_line.Help(*command);
            if (!help.ok()) return UsageError(help.status());
            PrintText(*help);
            return kExitOk;
          },
          /*asks_server=*/false};
}

int RunCommand(int argc, char** argv) {
  Globals globals{.server = kServer};
  CommandLine command_line("warpcall", "Runs compute kernels on a Warpcall server.",
                           ClientVersion());
  const Arguments arguments = command_line.arguments();
  arguments
      .Add("--server", &globals.server,
           "Address of the server: host, host:port (default 8470) or unix:/path; "
           "ipv4:A:PORT,B:PORT uses several servers in turn")
      .FromEnvironment(kServerVariable)
      .ShowDefault();
  arguments
      .Add("--session", &globals.session,
           "Ask a proxy in front of several servers to send all calls with this NAME to the same "
           "server, so that they find the tensors kept there")
      .TypeName("NAME")
      .FromEnvironment(kSessionVariable);
  CredentialFiles files;
  AddCredentialOptions(arguments, &files);
  arguments.AddFlag("--json", &globals.json, "Print JSON instead of tables, and errors as JSON");
  arguments.AddFlag("--verbose", &globals.verbose, "Show requests and responses on stderr");
  arguments.SetFooter(
      "Exit status: 0 success, 1 server refused or unreachable, 2 usage error.\n`warpcall help "
      "COMMAND` shows the help of a command.");

  const Command commands[] = {
      AddKernelsCommand(arguments, globals),  AddDevicesCommand(arguments, globals),
      AddRunCommand(arguments, globals),      AddFusedCommand(arguments, globals),
      AddGraphCommand(arguments, globals),    AddPutCommand(arguments, globals),
      AddGetCommand(arguments, globals),      AddFreeCommand(arguments, globals),
      AddTensorsCommand(arguments, globals),  AddBenchCommand(arguments, globals),
      AddTuneCommand(arguments, globals),     AddProfileCommand(arguments, globals),
      AddDescribeCommand(arguments, globals), AddPushCommand(arguments, globals),
      AddHealthCommand(arguments, globals),   AddLoadCommand(arguments, globals),
      AddCompareCommand(arguments, globals),  AddTopCommand(arguments, globals),
      AddVersionCommand(arguments, globals),  AddHelpCommand(arguments, command_line),
      AddCompletionCommand(arguments),
  };
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == kCompleteWord)
    return PrintCompletions(&command_line, absl::MakeConstSpan(words).subspan(1), globals, files);
  if (WantsJson(words)) PrintErrorsAsJson();
  if (int status = kExitOk; !command_line.Parse(argc, argv, &status)) return status;
  for (const Command& command : commands) {
    if (!command.arguments.named()) continue;
    const absl::Status address = client::CheckAddress(globals.server);
    if (command.asks_server && !address.ok()) return UsageError(address);
    absl::StatusOr<client::Credentials> credentials = ReadCredentials(files);
    if (command.asks_server && !credentials.ok()) return UsageError(credentials.status());
    if (credentials.ok()) globals.credentials = *std::move(credentials);
    return command.run();
  }
  return kExitUsage;
}

int Main(int argc, char** argv) {
  HoldClosedStreams();
  SetOutScreen(FindScreen(STDOUT_FILENO));
  // The program reports each error once; gRPC would print its own lines first.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return FinishOutput(RunCommand(argc, argv));
}

}  // namespace
}  // namespace warpcall::cli

int main(int argc, char** argv) { return warpcall::cli::Main(argc, argv); }
