#include <regex>

#include "absl/strings/str_cat.h"
#include "server/transport/trace_context.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {

std::string FuzzTraceparent(absl::string_view input) {
  // https://www.w3.org/TR/trace-context/#traceparent-header
  static const std::regex* const form =
      new std::regex("00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})");
  const auto context = ParseTraceparent(input);
  const std::string text(input.substr(0, 100));  // the start of a longer one is enough to tell
  std::smatch parts;
  const bool fits = std::regex_match(text, parts, *form);
  if (context.has_value() != fits)
    return absl::StrCat("it ", fits ? "has" : "does not have", " the specification's form");
  if (!fits) return "";
  const bool sampled = (std::stoi(parts[3], nullptr, 16) & 1) != 0;
  if (context->trace_id != parts[1] || context->parent_id != parts[2] ||
      context->sampled != sampled)
    return absl::StrCat("read as ", ToTraceparent(*context));
  const auto again = ParseTraceparent(ToTraceparent(*context));
  if (!again.has_value() || again->trace_id != context->trace_id ||
      again->parent_id != context->parent_id || again->sampled != context->sampled)
    return absl::StrCat("written as ", ToTraceparent(*context), ", which reads differently");
  return "";
}

}  // namespace warpcall::testing
