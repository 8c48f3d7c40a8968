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
  std::vector<std::string> words = {};    // allowed here by the command line alone
  Names names = Names::kNone;             // names allowed here as well
  std::string begun = {};                 // prefix that the words must have
  std::string before = {};                // text in front of the prefix in the last word: "--type="
  std::string kernel = {};                // kernel on the command line, if any
  std::vector<std::string> options = {};  // program's own options on the line: "--server=unix:/s"
};

// Completes the last of `words`, which may be partial or empty; the words in front of it are whole.
// The program's name is not among them.
Completion Complete(const ProgramModel& program, absl::Span<const std::string> words);

// As the first argument: the words behind it are a command line without the program's name, whose
// last word is to be completed.
inline constexpr char kCompleteWord[] = "__complete";

// Prints the candidates for the last of `words`, one a line, and returns the exit status. Names
// that only the server knows are left out if it does not answer at once. It is asked as a command
// would: `command_line` reads the program's options into `globals` and `files`.
int PrintCompletions(CommandLine* command_line, absl::Span<const std::string> words,
                     const Globals& globals, const CredentialFiles& files);

}  // namespace warpcall::cli
