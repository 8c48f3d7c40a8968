// warpcall help: what --help says, for who does not know of --help.
#include <memory>
#include <string>

#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"

namespace warpcall::cli {

Command AddHelpCommand(const Arguments& root, const CommandLine& command_line) {
  const Arguments arguments =
      root.AddSubcommand("help", "Say what the program, or a command, takes");
  const auto command = std::make_shared<std::string>();
  arguments.Add("command", command.get(), "One of the program's; none: all of them");
  return {arguments,
          [&command_line, command] {
            const auto help = command_line.Help(*command);
            if (!help.ok()) return UsageError(help.status());
            PrintText(*help);
            return kExitOk;
          },
          /*asks_server=*/false};
}

}  // namespace warpcall::cli
