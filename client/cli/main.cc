// warpcall: the command line of a Warpcall server.

#include "client/cli/common/command.h"
#include "client/cli/common/options.h"

namespace warpcall::cli {
namespace {

int Main(int argc, char** argv) {
  Globals globals{.server = "127.0.0.1:8470"};
  CommandLine command_line("warpcall", "Runs compute kernels on a Warpcall server.",
                           WARPCALL_VERSION);
  const Arguments arguments = command_line.arguments();
  arguments.Add("--server", &globals.server, "host:port or unix:/path")
      .FromEnvironment("WARPCALL_SERVER")
      .ShowDefault();
  arguments.AddFlag("--json", &globals.json, "Print JSON instead of tables");
  arguments.SetFooter("Exit status: 0 done, 1 refused by the server or not reached, 2 usage.");

  const Command commands[] = {
      AddKernelsCommand(arguments, globals),  AddDevicesCommand(arguments, globals),
      AddRunCommand(arguments, globals),      AddFusedCommand(arguments, globals),
      AddBenchCommand(arguments, globals),    AddProfileCommand(arguments, globals),
      AddDescribeCommand(arguments, globals), AddHealthCommand(arguments, globals),
      AddLoadCommand(arguments, globals),
  };
  if (int status = kExitOk; !command_line.Parse(argc, argv, &status)) return status;
  for (const Command& command : commands)
    if (command.arguments.named()) return command.run();
  return kExitUsage;
}

}  // namespace
}  // namespace warpcall::cli

int main(int argc, char** argv) { return warpcall::cli::Main(argc, argv); }
