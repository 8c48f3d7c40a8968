// Shells' completion: their scripts ask the program itself, which knows its options, and the
// server, which knows its kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/cli/common/command.h"
#include "client/cli/common/credentials.h"
#include "client/cli/common/options.h"

namespace warpcall::cli {

// Names that the server knows, and files, which the shell does.
enum class Names : uint8_t { kNone, kKernels, kImplementations, kDevices, kAttributes, kFiles };

struct Completion {
  std::vector<std::string> words = {};    // that may stand there, by the command line alone
  Names names = Names::kNone;             // what may stand there beside them
  std::string begun = {};                 // that the words are to begin with
  std::string before = {};                // stands before it in the last word: "--type="
  std::string kernel = {};                // that the command line names, if any
  std::vector<std::string> options = {};  // the program's own that it has, as "--server=unix:/s"
};

// Of the last of `words`, which may be begun or empty; those before it are whole. The program's
// name is not among them.
Completion Complete(const ProgramModel& program, absl::Span<const std::string> words);

// As the first argument: the words behind it are a command line without the program's name, whose
// last word is to be completed.
inline constexpr char kCompleteWord[] = "__complete";

// Prints what may stand in place of the last of `words`, one a line, and returns the exit status.
// What only the server knows is left out where it does not answer at once. It is asked as the
// command would ask it: `command_line` reads the program's options into `globals` and `files`.
int PrintCompletions(CommandLine* command_line, absl::Span<const std::string> words,
                     const Globals& globals, const CredentialFiles& files);

}  // namespace warpcall::cli
