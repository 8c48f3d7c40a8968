#include "server/flags/flag_words.h"

#include <unistd.h>

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/common/status_macros.h"
#include "proto/common/suggest.h"

namespace warpcall {
namespace {

constexpr char kFlagFile[] = "flagfile";

// Flags that keep others out. Without a value, of a variable that is not set, say, they would let
// everybody in.
constexpr absl::string_view kGuards[] = {"tls_cert", "tls_key", "tls_client_ca", "token_file",
                                         "policy_file"};

// Returns true if no value is a valid value: it is the default, and the option is no guard.
bool TakesNothing(const CLI::Option& option) {
  return option.get_expected_min() > 0 && option.get_default_str().empty() &&
         !absl::c_linear_search(kGuards, option.get_lnames().front());
}

// Returns `word` with _ for - in the name of a flag: either may be typed.
std::string WithUnderscores(absl::string_view word) {
  std::string changed(word);
  if (!absl::StartsWith(word, "--")) return changed;
  const auto end = changed.begin() + static_cast<ptrdiff_t>(std::min(word.find('='), word.size()));
  std::replace(changed.begin() + 2, end, '-', '_');
  return changed;
}

std::vector<std::string> AllWithUnderscores(std::vector<std::string> words) {
  for (std::string& word : words) word = WithUnderscores(word);
  return words;
}

std::string NameOf(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "--")) return "";
  return std::string(word.substr(0, word.find('=')));
}

}  // namespace

const CLI::Option* FindPublic(const CLI::App& app, const std::string& name) {
  const CLI::Option* const option = app.get_option_no_throw(absl::StrCat("--", name));
  const bool tells_only = name == "help" || name == "version";
  return option == nullptr || tells_only || option->get_group().empty() ? nullptr : option;
}

FlagWords::FlagWords(const CLI::App& app, const std::vector<std::string>& command_line)
    : app_(app),
      command_line_(AllWithUnderscores(command_line)),
      environment_(FlagsOfEnvironment(environ)) {}

absl::Status FlagWords::AddCommandLine() {
  const std::vector<std::string>& words = command_line_;
  for (size_t i = 0; i < words.size(); ++i) {
    given_.insert(NameOf(words[i]));
    // An empty word is the value of the word before it.
    const bool is_empty = i + 1 < words.size() && words[i + 1].empty() &&
                          !NameOf(words[i]).empty() && !absl::StrContains(words[i], '=');
    RETURN_IF_ERROR(AddWord(is_empty ? absl::StrCat(words[i++], "=") : words[i]));
  }
  return absl::OkStatus();
}

absl::Status FlagWords::AddEnvironment(Config* config) {
  for (const FlagSetting& setting : environment_) {
    if (FindPublic(app_, setting.name) == nullptr)
      config->warnings.push_back(absl::StrCat(setting.where, " names no flag of this server",
                                              SuggestionFor(setting.name)));
    else
      RETURN_IF_ERROR(Add(setting));
  }
  return absl::OkStatus();
}

absl::Status FlagWords::AddFile(Config* config) {
  const std::string path = ValueOf(kFlagFile);
  if (path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(file_, ReadFlagFile(path));
  for (const FlagSetting& setting : file_) {
    if (FindPublic(app_, setting.name) == nullptr || setting.name == kFlagFile)
      return absl::InvalidArgumentError(absl::StrCat(setting.where, ": flag ", setting.name,
                                                     " is unknown or not allowed in a file",
                                                     SuggestionFor(setting.name)));
    config->file_flags[setting.name] = setting.value;
    RETURN_IF_ERROR(Add(setting));
  }
  return absl::OkStatus();
}

std::string FlagWords::ValueOf(absl::string_view name) const {
  for (size_t i = 0; i < command_line_.size(); ++i) {
    absl::string_view word = command_line_[i];
    if (NameOf(word) != name) continue;
    if (absl::ConsumePrefix(&word, absl::StrCat("--", name, "="))) return std::string(word);
    return i + 1 < command_line_.size() ? command_line_[i + 1] : "";
  }
  for (const std::vector<FlagSetting>* const settings : {&environment_, &file_})
    for (const FlagSetting& setting : *settings)
      if (setting.name == name) return setting.value;
  return "";
}

std::string FlagWords::WhereIn(absl::string_view error) const {
  for (const FlagSetting& setting : added_) {
    // "--queue_limit: Value x not in range", "Could not convert: --check = x"
    if (!absl::StrContains(error, absl::StrCat("--", setting.name, ":")) &&
        !absl::StrContains(error, absl::StrCat("--", setting.name, " =")))
      continue;
    const bool has_comment = absl::StrContains(setting.value, " #");
    return absl::StrCat("; it stands in ", setting.where,
                        has_comment ? "; write a comment on a line of its own" : "");
  }
  return "";
}

absl::Status FlagWords::Add(const FlagSetting& setting) {
  if (!given_.insert(setting.name).second) return absl::OkStatus();
  added_.push_back(setting);
  const absl::Status status = AddWord(absl::StrCat("--", setting.name, "=", setting.value));
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(setting.where, ": ", status.message()));
}

std::string FlagWords::SuggestionFor(absl::string_view name) const {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app_.get_options())
    if (!option->get_group().empty() && !option->get_lnames().empty())
      names.push_back(option->get_lnames().front());
  return DidYouMean(name, names);
}

absl::Status FlagWords::AddWord(const std::string& word) {
  const std::string name = NameOf(word);
  if (!name.empty() && app_.get_option_no_throw(absl::StrCat("--", name)) == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("flag ", name, " is unknown", SuggestionFor(name)));
  const CLI::Option* const option =
      word.find('=') == word.size() - 1 ? FindPublic(app_, name) : nullptr;
  if (option == nullptr) {
    words_.push_back(word);
    return absl::OkStatus();
  }
  if (!TakesNothing(*option))
    return absl::InvalidArgumentError(absl::StrCat(word, " lacks a value"));
  // CLI11 would take the next word for it.
  words_.insert(words_.end(), {word.substr(0, word.size() - 1), ""});
  return absl::OkStatus();
}

}  // namespace warpcall
