// Properties of a text output for people: its width, and its support for colours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/common/printable.h"
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

// All text of a server goes through Printable (printable.h) or this function, which is for lines:
// keeps newlines and tabs and, if `screen` has colours, colour codes.
std::string PrintableLines(absl::string_view text, const Screen& screen);

// Returns `text` in lines that fit OutScreen(), each with its newline: the first after `before`,
// the others after `indent` spaces. If `before` leaves little room, it gets a line of its own. Both
// texts go through Printable.
std::string Fitted(absl::string_view before, absl::string_view text, size_t indent);

}  // namespace warpcall::cli
