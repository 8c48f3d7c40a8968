// Text in lines that fit a screen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace warpcall {

// Returns the number of UTF-8 characters, each counted as one column.
size_t Columns(absl::string_view text);

// Breaks `text` into lines of at most `columns` (at least 1): at spaces, in longer words after
// commas, and anywhere if a word has none. 0 columns: one line.
std::vector<std::string> WrapText(absl::string_view text, size_t columns);

// Breaks the lines of a help text by CLI11, so that they have at most `columns` (0: any number).
// Descriptions stay in their column.
std::string FitHelp(absl::string_view text, size_t columns);

}  // namespace warpcall
