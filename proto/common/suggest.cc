#include "proto/common/suggest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

using absl::string_view;

// Beginnings that are shorter fit too much.
constexpr size_t kBeginningMin = 3;
// Names are short; nobody means one by a text that is longer.
constexpr size_t kTextBytesMax = 64;

// A digit tells one name from another.
size_t Weight(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)) ? 2 : 1; }

// The slips that turn one text into the other, where neighbours may swap places (Damerau 1964, in
// the restricted form that edits no letter twice).
size_t Slips(string_view a, string_view b) {
  std::vector<std::vector<size_t>> slips(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i) slips[i][0] = slips[i - 1][0] + Weight(a[i - 1]);
  for (size_t j = 1; j <= b.size(); ++j) slips[0][j] = slips[0][j - 1] + Weight(b[j - 1]);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const char x = a[i - 1];
      const char y = b[j - 1];
      const size_t change = x == y ? 0 : std::max(Weight(x), Weight(y));
      slips[i][j] = std::min(
          {slips[i - 1][j] + Weight(x), slips[i][j - 1] + Weight(y), slips[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        slips[i][j] = std::min(slips[i][j], slips[i - 2][j - 2] + 1);
    }
  }
  return slips[a.size()][b.size()];
}

// The name that begins with `text`, or with which it begins; empty unless there is one alone.
std::string SameBeginning(string_view text, absl::Span<const std::string> known) {
  std::string whole;
  for (const std::string& name : known) {
    const bool is_longer = name.size() > kBeginningMin && absl::StartsWithIgnoreCase(text, name);
    if (!is_longer && !absl::StartsWithIgnoreCase(name, text)) continue;
    if (!whole.empty()) return "";
    whole = name;
  }
  return whole;
}

}  // namespace

std::string Nearest(string_view text, absl::Span<const std::string> known) {
  if (text.empty() || text.size() > kTextBytesMax) return "";
  const std::string lower = absl::AsciiStrToLower(text);
  size_t fewest = std::max<size_t>(1, text.size() / 3) + 1;
  std::string nearest;
  for (const std::string& name : known) {
    const size_t slips = Slips(lower, absl::AsciiStrToLower(name));
    if (slips >= fewest || slips >= name.size()) continue;
    fewest = slips;
    nearest = name;
  }
  if (nearest.empty() && text.size() >= kBeginningMin) return SameBeginning(text, known);
  return nearest;
}

std::string DidYouMean(string_view text, absl::Span<const std::string> known) {
  const std::string nearest = Nearest(text, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace warpcall
