#include "client/cli/common/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall::cli {
namespace {

using printable_text::ContinuesCharacter;

constexpr size_t kColumnsDefault = 100;
// On a narrower one lines are broken by the terminal itself.
constexpr size_t kColumnsMin = 40;

// For less text than this no line is begun behind something else.
constexpr size_t kTextColumnsMin = 24;
constexpr size_t kBelowIndent = 6;

constexpr absl::string_view kErrorCode = "\x1b[31;1m";
constexpr absl::string_view kHeadingCode = "\x1b[1m";
constexpr absl::string_view kPlainCode = "\x1b[0m";

Screen out_screen;  // for the whole process, as stdout is

size_t ColumnsOf(int descriptor) {
  winsize size = {};
  if (isatty(descriptor) != 0) {
    const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : kColumnsDefault;
  }
  const char* const variable = std::getenv("COLUMNS");
  int columns;
  const bool valid = variable != nullptr && absl::SimpleAtoi(variable, &columns) && columns > 0;
  return valid ? static_cast<size_t>(columns) : kColumnsDefault;
}

bool HasColour(int descriptor) {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(descriptor) != 0 && (no_colour == nullptr || *no_colour == '\0') &&
         (terminal == nullptr || absl::string_view(terminal) != "dumb");
}

// Length of the newline, tab or colour code at the start of `text` that stays; 0: none.
size_t KeptBytes(absl::string_view text, const Screen& screen) {
  if (text[0] == '\n' || text[0] == '\t') return 1;
  if (!screen.colour) return 0;
  for (const absl::string_view code : {kErrorCode, kHeadingCode, kPlainCode})
    if (absl::StartsWith(text, code)) return code.size();
  return 0;
}

}  // namespace

Screen FindScreen(int descriptor) {
  return {std::max(ColumnsOf(descriptor), kColumnsMin), HasColour(descriptor)};
}

const Screen& OutScreen() { return out_screen; }

void SetOutScreen(const Screen& screen) { out_screen = screen; }

std::string Emphasised(absl::string_view text, Emphasis emphasis, const Screen& screen) {
  if (!screen.colour) return std::string(text);
  return absl::StrCat(emphasis == Emphasis::kError ? kErrorCode : kHeadingCode, text, kPlainCode);
}

std::string PrintableLines(absl::string_view text, const Screen& screen) {
  std::string printable;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t kept = KeptBytes(text.substr(i), screen);
    if (kept == 0) {
      ++i;
      continue;
    }
    absl::StrAppend(&printable, Printable(text.substr(begin, i - begin)), text.substr(i, kept));
    begin = i += kept;
  }
  return absl::StrCat(printable, Printable(text.substr(begin)));
}

std::string Fitted(absl::string_view before, absl::string_view text, size_t indent) {
  const size_t columns = OutScreen().columns;
  std::string lines, beginning = Printable(before);
  if (columns > 0 && std::max(Columns(beginning), indent) + kTextColumnsMin > columns) {
    absl::StrAppend(&lines, beginning, "\n");
    indent = kBelowIndent;
    beginning = std::string(indent, ' ');
  }
  // All lines take the room of the shortest, so that they can be broken at once.
  const size_t room = columns == 0 ? 0 : columns - std::max(Columns(beginning), indent);
  for (const std::string& line : WrapText(Printable(text), room)) {
    absl::StrAppend(&lines, beginning, line, "\n");
    beginning = std::string(indent, ' ');
  }
  return lines;
}

}  // namespace warpcall::cli
