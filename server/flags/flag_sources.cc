#include "server/flags/flag_sources.h"

#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/common/status_macros.h"
#include "server/process/child.h"
#include "server/system/small_file.h"

namespace warpcall {
namespace {

// A flag file has some twenty lines; whoever names a device or a log by mistake is told.
constexpr size_t kFileBytesMax = 64 << 10;

bool IsName(absl::string_view text) {
  return !text.empty() &&
         absl::c_all_of(text, [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool IsQuoted(absl::string_view value) {
  return value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
         value.back() == value.front();
}

}  // namespace

absl::StatusOr<std::vector<FlagSetting>> ReadFlagFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile("flagfile", path, kFileBytesMax));
  std::vector<FlagSetting> settings;
  std::map<std::string, std::string> seen;  // where, by name
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (line.empty() || line.front() == '#') continue;
    absl::ConsumePrefix(&line, "--");
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    // Either may be typed.
    const std::string name =
        absl::StrReplaceAll(absl::StripAsciiWhitespace(parts.first), {{"-", "_"}});
    if (name.empty() || parts.first.size() == line.size())
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": \"", line, "\" is not NAME=VALUE",
                       IsName(name) ? absl::StrCat("; for a switch write ", name, "=true") : ""));
    const auto [before, is_new] = seen.emplace(name, where);
    if (!is_new)
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", name, " is given at ", before->second, " already"));
    const absl::string_view value = absl::StripAsciiWhitespace(parts.second);
    if (IsQuoted(value))
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": the value of ", name, " is in quotes, which count as part of it; ",
                       "write ", name, "=", value.substr(1, value.size() - 2)));
    settings.push_back({name, std::string(value), where});
  }
  return settings;
}

std::vector<FlagSetting> FlagsOfEnvironment(const char* const* environment) {
  std::vector<FlagSetting> settings;
  for (; *environment != nullptr; ++environment) {
    absl::string_view variable = *environment;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(variable, absl::MaxSplits('=', 1));
    absl::string_view name = parts.first;
    if (absl::ConsumePrefix(&name, process::kFlagVariablePrefix))
      settings.push_back(
          {absl::AsciiStrToLower(name), std::string(parts.second), std::string(parts.first)});
  }
  return settings;
}

}  // namespace warpcall
