// Reads a command line, and reports an error in it in one line.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "proto/common/suggest.h"

namespace warpcall::cli {
namespace {

using absl::string_view;

std::string HelpOf(const CLI::App& app, const std::string& name) {
  return FitHelp(app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal),
                 OutScreen().columns);
}

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : Commands(app)) names.push_back(command->get_name());
  return names;
}

// Returns the values between braces, with which --help lists an option's few values.
std::vector<std::string> Values(const std::string& type_name) {
  const size_t begin = type_name.find('{');
  const size_t end = type_name.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return absl::StrSplit(type_name.substr(begin + 1, end - begin - 1), ',');
}

std::vector<OptionModel> Options(const CLI::App& app) {
  std::vector<OptionModel> models;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    models.push_back({.name = option->get_name(),
                      .named = option->nonpositional(),
                      .takes_value = option->get_type_size_max() > 0,
                      .values = Values(option->get_type_name())});
  return models;
}

std::vector<std::string> OptionNames(const CLI::App& app, const CLI::App* command) {
  std::vector<std::string> names;
  for (const CLI::App* owner : {&app, command}) {
    if (owner == nullptr) continue;
    for (const OptionModel& option : Options(*owner))
      if (option.named) names.push_back(option.name);
  }
  return names;
}

bool HasOption(const CLI::App& command, const std::string& name) {
  for (const OptionModel& option : Options(command))
    if (option.named && option.name == name) return true;
  return false;
}

// "4096x4096".
bool IsShape(const std::string& word) {
  return word.find('x') != std::string::npos &&
         word.find_first_not_of("0123456789x,") == std::string::npos;
}

// Returns the error message for an unexpected argument.
std::string Unexpected(const CLI::App& app, const CLI::App* command, const std::string& word) {
  const std::string name = app.get_name();
  if (absl::StartsWith(word, "-")) {
    const std::string option = word.substr(0, word.find('='));
    if (command != nullptr && HasOption(*command, option))
      return absl::StrCat("option ", option, " belongs to ", name, " ", command->get_name(),
                          " and must follow it");
    return absl::StrCat("option ", option, " of ", name,
                        command == nullptr ? "" : absl::StrCat(" ", command->get_name()),
                        " is unknown", DidYouMean(option, OptionNames(app, command)));
  }
  if (command == nullptr)
    return absl::StrCat("subcommand '", word, "' of ", name, " is unknown",
                        DidYouMean(word, CommandNames(app)));
  return absl::StrCat(
      "unexpected argument '", word, "' for ", name, " ", command->get_name(),
      IsShape(word) && HasOption(*command, "--shape")
          ? "; shapes follow --shape, and a shell expands braces that are not quoted: --shape "
            "'{1024,4096}x4096'"
          : "");
}

// Returns the arguments, the last one first as CLI11 takes them, with the options' own names: - and
// _ may be typed for each other.
std::vector<std::string> WordsOf(const CLI::App& app, int argc, char** argv) {
  const auto plain = [](string_view name) { return absl::StrReplaceAll(name, {{"-", "_"}}); };
  absl::flat_hash_map<std::string, std::string> names;
  std::vector<const CLI::App*> owners = Commands(app);
  owners.push_back(&app);
  for (const CLI::App* const owner : owners)
    for (const OptionModel& option : Options(*owner)) names[plain(option.name)] = option.name;
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::string& word : words) {
    const size_t end = std::min(word.find('='), word.size());
    const auto found = names.find(plain(string_view(word).substr(0, end)));
    if (absl::StartsWith(word, "--") && found != names.end()) word.replace(0, end, found->second);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// Returns the error in one line, which ends with where to read more.
std::string Wrong(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  const CLI::App* const command = parsed.empty() ? nullptr : parsed[0];
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  std::string what;
  if (!rest.empty()) {
    what = Unexpected(app, command, rest[0]);
  } else if (command == nullptr) {
    what = absl::StrCat("a subcommand is required: ", absl::StrJoin(CommandNames(app), ", "));
  } else {
    what = absl::StrReplaceAll(error.what(), {{"\n", " "}});
  }
  return absl::StrCat(what, absl::EndsWith(what, "?") ? "" : ".", " See: ", app.get_name(), " help",
                      command == nullptr ? "" : absl::StrCat(" ", command->get_name()));
}

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& help,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(help, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->fallthrough();  // subcommands take the program's options too
}

CommandLine::~CommandLine() = default;

bool CommandLine::Parse(int argc, char** argv, int* status) {
  try {
    app_->parse(WordsOf(*app_, argc, argv));
    return true;
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> parsed = app_->get_subcommands();
    const auto help = Help(parsed.empty() ? "" : parsed[0]->get_name());
    PrintText(*help);
    *status = kExitOk;
  } catch (const CLI::CallForVersion& version) {
    PrintText(absl::StrCat(version.what(), "\n"));
    *status = kExitOk;
  } catch (const CLI::ParseError& error) {
    *status = UsageError(absl::InvalidArgumentError(Wrong(*app_, error)));
  }
  return false;
}

bool CommandLine::ParseOptions(std::vector<std::string> words) {
  app_->require_subcommand(0);
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app_->parse(words);
    return true;
  } catch (const CLI::Error&) {
    return false;
  }
}

ProgramModel CommandLine::Model() const {
  ProgramModel model{.options = Options(*app_)};
  for (const CLI::App* command : Commands(*app_))
    model.commands.push_back({.name = command->get_name(), .options = Options(*command)});
  return model;
}

absl::StatusOr<std::string> CommandLine::Help(const std::string& command) const {
  if (command.empty()) return HelpOf(*app_, app_->get_name());
  for (const CLI::App* known : Commands(*app_))
    if (known->get_name() == command)
      return HelpOf(*known, absl::StrCat(app_->get_name(), " ", command));
  return absl::NotFoundError(absl::StrCat("subcommand '", command, "' is unknown; available: ",
                                          absl::StrJoin(CommandNames(*app_), ", "),
                                          DidYouMean(command, CommandNames(*app_))));
}

}  // namespace warpcall::cli
