// The words that CLI11 parses: those of the command line, and for flags that are not among them
// those of the environment or else of the flag file.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/flags/config.h"
#include "server/flags/flag_sources.h"

namespace warpcall {

// Returns the flag of that name which anybody may give, or null.
const CLI::Option* FindPublic(const CLI::App& app, const std::string& name);

// Flags may be written with - for _ on the command line and in the file.
class FlagWords {
 public:
  // `app` has all flags, and outlives the object.
  FlagWords(const CLI::App& app, const std::vector<std::string>& command_line);

  // To be called in this order. Errors say where a flag stands.
  absl::Status AddCommandLine();
  absl::Status AddEnvironment(Config* config);
  absl::Status AddFile(Config* config);

  bool Given(const std::string& name) const { return given_.count(name) > 0; }
  // Returns the text that the first of the sources gives a flag, valid or not, or "". The file
  // counts once AddFile has read it.
  std::string ValueOf(absl::string_view name) const;
  // Returns all words, the last one first, as CLI::App::parse wants them.
  std::vector<std::string> Reversed() const { return {words_.rbegin(), words_.rend()}; }
  // Returns where the flag that an error is about was given, when that is not to be seen.
  std::string WhereIn(absl::string_view error) const;

 private:
  absl::Status Add(const FlagSetting& setting);
  // Returns "; did you mean NAME?", or nothing where no flag's name is near.
  std::string SuggestionFor(absl::string_view name) const;
  // INVALID_ARGUMENT for an unknown flag, and for --NAME= of a flag that needs a value.
  absl::Status AddWord(const std::string& word);

  const CLI::App& app_;
  const std::vector<std::string> command_line_;
  const std::vector<FlagSetting> environment_;
  std::vector<FlagSetting> file_;
  std::vector<std::string> words_;
  std::set<std::string> given_;
  std::vector<FlagSetting> added_;
};

}  // namespace warpcall
