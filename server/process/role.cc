#include "server/process/role.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace warpcall::process {
namespace {

constexpr std::pair<Role, absl::string_view> kNames[] = {{Role::kInspect, "inspect-child"},
                                                         {Role::kSelfTest, "self-test-child"},
                                                         {Role::kWorker, "worker"},
                                                         {Role::kCompiler, "compiler"}};

// Calls `visit` with the name and the value of each flag.
template <typename Flags, typename Visit>
void VisitFlags(Flags& flags, const Visit& visit) {
  visit("device", flags.device);
  visit("fault_injection", flags.fault_injection);
  visit("compile_cache", flags.compile_cache);
  visit("log_level", flags.log_level);
  visit("log_format", flags.log_format);
  visit("method", flags.method);
  visit("traceparent", flags.traceparent);
  visit("in_parts", flags.in_parts);
  visit("deadline_ns", flags.deadline_ns);
  visit("limit_ns", flags.limit_ns);
  visit("unavailable_row", flags.unavailable_rows);
  visit("push_run_ns", flags.push_run_ns);
  visit("gpu_architecture", flags.gpu_architecture);
  visit("gpu_multiprocessors", flags.gpu_multiprocessors);
  visit("gpu_shared_memory", flags.gpu_shared_memory);
  visit("gpu_description", flags.gpu_description);
  visit("depth", flags.depth);
  visit("rows", flags.rows);
  visit("foreign", flags.foreign);
  visit("cuda_include", flags.cuda_include);
  visit("lanes", flags.lanes);
}

// The texts of a value, one for each word of its flag.
std::vector<std::string> ToTexts(const std::string& value) {
  if (value.empty()) return {};
  return {value};
}
std::vector<std::string> ToTexts(bool value) {
  if (!value) return {};
  return {"true"};
}
std::vector<std::string> ToTexts(int64_t value) { return {absl::StrCat(value)}; }
std::vector<std::string> ToTexts(const std::vector<std::string>& value) { return value; }
std::vector<std::string> ToTexts(const std::vector<int64_t>& value) {
  if (value.empty()) return {};
  return {absl::StrJoin(value, ",")};
}

bool AddText(absl::string_view text, std::string* value) {
  *value = std::string(text);
  return true;
}
bool AddText(absl::string_view text, bool* value) { return absl::SimpleAtob(text, value); }
bool AddText(absl::string_view text, int64_t* value) { return absl::SimpleAtoi(text, value); }
bool AddText(absl::string_view text, std::vector<std::string>* value) {
  value->emplace_back(text);
  return true;
}
bool AddText(absl::string_view text, std::vector<int64_t>* value) {
  for (const absl::string_view number : absl::StrSplit(text, ','))
    if (!absl::SimpleAtoi(number, &value->emplace_back())) return false;
  return true;
}

}  // namespace

absl::optional<Role> FindRole(absl::string_view word) {
  for (const auto& [role, name] : kNames)
    if (word == name) return role;
  return absl::nullopt;
}

std::vector<std::string> ToWords(const RoleFlags& flags) {
  std::vector<std::string> words;
  for (const auto& [role, name] : kNames)
    if (role == flags.role) words.emplace_back(name);
  VisitFlags(flags, [&](absl::string_view name, const auto& value) {
    for (const std::string& text : ToTexts(value))
      words.push_back(absl::StrCat("--", name, "=", text));
  });
  return words;
}

absl::StatusOr<RoleFlags> ParseRoleFlags(Role role, absl::Span<const std::string> words) {
  RoleFlags flags;
  flags.role = role;
  for (const std::string& word : words) {
    bool is_known = false;
    VisitFlags(flags, [&](absl::string_view name, auto& value) {
      absl::string_view text = word;
      if (absl::ConsumePrefix(&text, absl::StrCat("--", name, "=")))
        is_known = AddText(text, &value);
    });
    if (!is_known)
      return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is no flag of this role"));
  }
  return flags;
}

}  // namespace warpcall::process
