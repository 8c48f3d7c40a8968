// Text of others, made harmless for a terminal and for a page.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {

namespace printable_text {

// True for every byte of a UTF-8 character but its first.
inline bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace printable_text

// Returns `text` as part of a line of a terminal or a page. Writes out as "\x1b" each byte of a
// control character, of a character that hides others or changes their direction, and of what is
// not UTF-8.
std::string Printable(absl::string_view text);

// Text as Printable, for elements and attribute values of XML and HTML alike. XML 1.0 has no way to
// write most control characters.
std::string EscapeMarkup(absl::string_view text);

}  // namespace warpcall
