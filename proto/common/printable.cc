#include "proto/common/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_format.h"

namespace warpcall {
namespace {

struct Range {
  uint32_t first, last;
};
// Code points that show nothing of their own but change what is shown around them.
constexpr Range kUnprintable[] = {
    {0x00, 0x1F},        // C0 controls
    {0x7F, 0x9F},        // DEL and C1 controls; U+009B begins a terminal's escape code
    {0xAD, 0xAD},        // soft hyphen
    {0x61C, 0x61C},      // Arabic letter mark
    {0x180E, 0x180E},    // Mongolian vowel separator
    {0x200B, 0x200F},    // zero widths, direction marks
    {0x2028, 0x202E},    // line and paragraph separators, embeddings, overrides
    {0x2060, 0x206F},    // invisible operators, isolates
    {0xFEFF, 0xFEFF},    // byte order mark
    {0xFFF9, 0xFFFB},    // interlinear annotations
    {0xE0000, 0xE0FFF},  // tags, variation selectors
};

struct Character {
  size_t bytes = 1;
  bool printable = false;
};

// The UTF-8 character that `text`, which is not empty, begins with. A byte that begins none counts
// as a character that can't be printed.
Character FirstCharacter(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80                    ? 1
                       : first >= 0xC2 && first < 0xE0 ? 2
                       : first >= 0xE0 && first < 0xF0 ? 3
                       : first >= 0xF0 && first < 0xF5 ? 4
                                                       : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  uint32_t code = bytes == 1 ? first : first & (0x7Fu >> bytes);
  for (const char c : text.substr(1, bytes - 1)) {
    if (!printable_text::ContinuesCharacter(c)) return {};
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {};
  const auto holds = [code](Range range) { return range.first <= code && code <= range.last; };
  return {bytes, std::none_of(std::begin(kUnprintable), std::end(kUnprintable), holds)};
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    for (const char c : text.substr(0, character.bytes)) {
      if (character.printable) {
        printable.push_back(c);
      } else {
        absl::StrAppendFormat(&printable, "\\x%02x", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(character.bytes);
  }
  return printable;
}

std::string EscapeMarkup(absl::string_view text) {
  std::string escaped;
  for (const char c : Printable(text)) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

}  // namespace warpcall
