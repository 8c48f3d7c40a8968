#include "proto/common/manifest_comment.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall {
namespace {

constexpr absl::string_view kOpening = "// warpcall-kernel {";

bool IsOpening(absl::string_view line) { return absl::StartsWith(line, kOpening); }

// Says where the manifest stands instead, if it stands anywhere.
absl::Status NotAtTheBeginning(absl::string_view source) {
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(source, '\n')) {
    ++number;
    if (IsOpening(absl::StripAsciiWhitespace(line)))
      return absl::InvalidArgumentError(absl::StrCat(
          "the manifest, \"", kOpening, "\", stands in line ", number,
          " of the source; it must stand at the beginning, with nothing but blank lines before"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the source does not begin with the manifest, \"", kOpening, "\""));
}

}  // namespace

absl::StatusOr<std::string> FindManifest(absl::string_view source) {
  absl::ConsumePrefix(&source, kByteOrderMark);
  std::string json;
  for (absl::string_view line : absl::StrSplit(source, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (json.empty()) {
      if (line.empty()) continue;
      if (!IsOpening(line)) return NotAtTheBeginning(source);
      json = std::string(line.substr(kOpening.size() - 1));
      if (json.back() == '}') return json;
      continue;
    }
    if (!absl::ConsumePrefix(&line, "//")) break;
    absl::StrAppend(&json, "\n", line);
    if (line == " }" || line == "}") return json;
  }
  return absl::InvalidArgumentError(
      json.empty() ? absl::StrCat("the source is empty; it begins with \"", kOpening, "\"")
                   : "the manifest in the source's first comment has no end, \"// }\"");
}

}  // namespace warpcall
