// warpcall: the command line of a Warpcall server.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "client/cli/common/command.h"

namespace warpcall::cli {
namespace {

int Main(int argc, char** argv) {
  Globals globals{.server = "127.0.0.1:8470"};
  CLI::App app("Runs compute kernels on a Warpcall server.", "warpcall");
  app.set_version_flag("--version", WARPCALL_VERSION);
  app.add_option("--server", globals.server, "host:port or unix:/path")
      ->envname("WARPCALL_SERVER")
      ->capture_default_str();
  app.add_flag("--json", globals.json, "Print JSON instead of tables");
  app.require_subcommand(1);
  app.fallthrough();  // subcommands take the global options too
  app.footer("Exit status: 0 done, 1 refused by the server or not reached, 2 usage.");

  const Command commands[] = {
      AddKernelsCommand(&app, globals), AddDevicesCommand(&app, globals),
      AddRunCommand(&app, globals),     AddBenchCommand(&app, globals),
      AddProfileCommand(&app, globals), AddHealthCommand(&app, globals),
      AddLoadCommand(&app, globals),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;  // 0: --help or --version
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.run();
  return kExitUsage;
}

}  // namespace
}  // namespace warpcall::cli

int main(int argc, char** argv) { return warpcall::cli::Main(argc, argv); }
