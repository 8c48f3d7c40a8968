#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/access/policy.h"
#include "server/access/tokens.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

// Each policy that was taken says nothing outside its limits.
std::string WrongIn(const Policy& policy, const Policy::Names& methods) {
  if (!(policy.share >= 0.01 && policy.share <= 100)) return "a share";
  if (policy.requests_in_flight_max < 1 || policy.bytes_in_flight_max < 1) return "a limit";
  if (policy.methods.has_value())
    for (const std::string& name : *policy.methods)
      if (!methods.contains(name)) return "a method";
  return "";
}

std::string CheckPolicies(absl::string_view text) {
  const Policy::Names methods = {"Execute", "ListKernels"};
  const auto table = PolicyTable::Parse(text, methods);
  // The library must judge the bytes as we do: no text that is not JSON is ever in force.
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (!table.ok())
    return absl::IsInvalidArgument(table.status()) ? "" : absl::StrCat(table.status().ToString());
  if (!json.is_object()) return "what is no object of JSON was taken";
  const size_t principals = json.contains("principals") ? json["principals"].size() : 0;
  if (table->size() != principals)
    return absl::StrCat(table->size(), " principals of ", principals);
  if (const auto other = table->Of(""); (other != nullptr) != json.contains("default"))
    return "a default that is not there";
  if (principals > 0)
    for (const auto& [name, entry] : json["principals"].items()) {
      const auto policy = table->Of(name);
      if (policy == nullptr) return absl::StrCat("none for ", name);
      if (const std::string wrong = WrongIn(*policy, methods); !wrong.empty()) return wrong;
      if (policy->kernels.has_value() != entry.contains("kernels")) return "kernels";
    }
  return "";
}

// Returns true if `message` contains a line's second word that is long enough for a token and is no
// line's first word.
bool SaysAToken(absl::string_view text, absl::string_view message) {
  std::string names;
  std::vector<std::string> tokens;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(absl::StripAsciiWhitespace(line), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (!words.empty()) absl::StrAppend(&names, words[0], "\n");
    if (words.size() > 1 && words[1].size() >= 16) tokens.emplace_back(words[1]);
  }
  for (const std::string& token : tokens)
    if (absl::StrContains(message, token) && !absl::StrContains(names, token)) return true;
  return false;
}

std::string CheckTokens(absl::string_view text) {
  const auto table = TokenTable::Parse(text);
  if (!table.ok()) {
    if (SaysAToken(text, table.status().message())) return "the message has a token";
    return absl::IsInvalidArgument(table.status()) ? "" : table.status().ToString();
  }
  if (table->size() == 0) return "a table without a token was taken";
  return table->PrincipalOf("").ok() ? "nothing counts as a token" : "";
}

}  // namespace

std::string FuzzAccessFile(absl::string_view input) {
  if (input.empty()) return "";
  return input[0] == '{' || input[0] == '[' ? CheckPolicies(input) : CheckTokens(input);
}

}  // namespace warpcall::testing
