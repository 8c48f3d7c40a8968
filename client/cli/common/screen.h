// Properties of a text output for people: its width, and its support for colours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/common/text_lines.h"

namespace warpcall::cli {

struct Screen {
  size_t columns = 0;  // of a line; 0: no limit
  bool colour = false;
};

// Returns the screen of an open file. A terminal reports its width; other files use $COLUMNS; the
// default is 100 columns. Colours are for terminals, unless NO_COLOR is set (https://no-color.org)
// or TERM is "dumb".
Screen FindScreen(int descriptor);

// Screen of stdout, for tables and other text; without limits and colours until main sets it.
const Screen& OutScreen();
void SetOutScreen(const Screen& screen);

enum class Emphasis : uint8_t { kHeading, kError };
// Returns `text` between the codes that emphasise it, or unchanged if the screen has no colours.
std::string Emphasised(absl::string_view text, Emphasis emphasis, const Screen& screen);

// Returns `text` as part of a line of a terminal. All text of a server goes through this function
// or the next. Writes out as "\x1b" each byte of a control character, of a character that hides
// others or changes their direction, and of what is not UTF-8.
std::string Printable(absl::string_view text);
// Like Printable, for lines: keeps newlines and tabs and, if `screen` has colours, colour codes.
std::string PrintableLines(absl::string_view text, const Screen& screen);

// Returns `text` in lines that fit OutScreen(), each with its newline: the first after `before`,
// the others after `indent` spaces. If `before` leaves little room, it gets a line of its own. Both
// texts go through Printable.
std::string Fitted(absl::string_view before, absl::string_view text, size_t indent);

}  // namespace warpcall::cli
