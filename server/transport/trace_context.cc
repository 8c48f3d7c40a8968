#include "server/transport/trace_context.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall {
namespace {

constexpr absl::string_view kVersion = "00";
constexpr size_t kTraceIdDigits = 32;
constexpr size_t kParentIdDigits = 16;
constexpr size_t kFlagDigits = 2;

bool IsHex(absl::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

bool IsId(absl::string_view text, size_t digits) {
  return IsHex(text, digits) && text.find_first_not_of('0') != absl::string_view::npos;
}

// Returns true if the lowest bit of a hexadecimal digit is set. 'a' stands for 10 but is odd as a
// character.
bool IsOddDigit(char digit) { return digit <= '9' ? (digit & 1) != 0 : (digit & 1) == 0; }

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '-');
  if (parts.size() != 4 || parts[0] != kVersion || !IsId(parts[1], kTraceIdDigits) ||
      !IsId(parts[2], kParentIdDigits) || !IsHex(parts[3], kFlagDigits))
    return std::nullopt;
  return TraceContext{std::string(parts[1]), std::string(parts[2]), IsOddDigit(parts[3].back())};
}

std::string ToTraceparent(const TraceContext& context) {
  return absl::StrCat("00-", context.trace_id, "-", context.parent_id,
                      context.sampled ? "-01" : "-00");
}

}  // namespace warpcall
