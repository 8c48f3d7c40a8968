#include "kernels/compiled/ptx_parameters.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/common/status_macros.h"

namespace warpcall::compiled {
namespace {

constexpr absl::string_view kEntry = ".entry";
// Drivers take 32,764 bytes of parameters.
constexpr int64_t kElementsMax = 1 << 15;

absl::Status Unclear(absl::string_view what) {
  return absl::InternalError(absl::StrCat("PTX without ", what));
}

// Returns the text between the parentheses behind `.entry KERNEL`.
absl::StatusOr<absl::string_view> Declaration(absl::string_view ptx, absl::string_view kernel) {
  for (size_t at = ptx.find(kEntry); at != absl::string_view::npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(ptx.substr(at));
    if (!absl::ConsumePrefix(&rest, kernel)) continue;
    rest = absl::StripLeadingAsciiWhitespace(rest);
    if (!absl::ConsumePrefix(&rest, "(")) continue;
    if (const size_t end = rest.find(')'); end != absl::string_view::npos)
      return rest.substr(0, end);
  }
  return Unclear(absl::StrCat("the kernel ", kernel));
}

// "f32" has 4 bytes; 0 for words that are no type.
int64_t BytesOf(absl::string_view type) {
  int64_t bits = 0;
  const bool is_type = type.size() > 1 && absl::StrContains("bsuf", type.substr(0, 1)) &&
                       absl::SimpleAtoi(type.substr(1), &bits);
  return is_type && bits >= 8 && bits <= 128 ? bits / 8 : 0;
}

// ".param .u64 .ptr .align 1 NAME", or ".param .align 8 .b8 NAME[24]".
absl::StatusOr<PtxParameter> Parameter(absl::string_view text) {
  PtxParameter parameter;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty()))
    if (parameter.bytes == 0 && absl::ConsumePrefix(&word, ".") && BytesOf(word) > 0)
      parameter = {std::string(word), BytesOf(word)};
  if (parameter.bytes == 0) return Unclear("a parameter's type");
  const size_t bracket = text.find('[');
  if (bracket == absl::string_view::npos) return parameter;
  int64_t elements = 0;
  const absl::string_view rest = text.substr(bracket + 1);
  if (!absl::SimpleAtoi(rest.substr(0, rest.find(']')), &elements) || elements < 1 ||
      elements > kElementsMax)
    return Unclear("an array's size");
  parameter.bytes *= elements;
  return parameter;
}

}  // namespace

absl::StatusOr<std::vector<PtxParameter>> PtxParametersOf(absl::string_view ptx,
                                                          absl::string_view kernel) {
  ASSIGN_OR_RETURN(const absl::string_view declaration, Declaration(ptx, kernel));
  std::vector<PtxParameter> parameters;
  if (absl::StripAsciiWhitespace(declaration).empty()) return parameters;
  for (const absl::string_view text : absl::StrSplit(declaration, ',')) {
    ASSIGN_OR_RETURN(PtxParameter parameter, Parameter(text));
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace warpcall::compiled
