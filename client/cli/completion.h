// Shells' completion: their scripts ask the program itself, which knows its options, and the
// server, which knows its kernels.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "client/cli/common/command.h"
#include "client/cli/common/credentials.h"
#include "client/cli/common/options.h"

namespace warpcall::cli {

// As the first argument: the words behind it are a command line without the program's name, whose
// last word is to be completed.
inline constexpr char kCompleteWord[] = "__complete";

// Prints what may stand in place of the last of `words`, one a line, and returns the exit status.
// What only the server knows is left out where it does not answer at once. It is asked as the
// command would ask it: `command_line` reads the program's options into `globals` and `files`.
int PrintCompletions(CommandLine* command_line, absl::Span<const std::string> words,
                     const Globals& globals, const CredentialFiles& files);

}  // namespace warpcall::cli
