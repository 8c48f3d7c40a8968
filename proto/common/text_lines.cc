#include "proto/common/text_lines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/common/printable.h"

namespace warpcall {
namespace {

using printable_text::ContinuesCharacter;

// Column at which CLI11 describes options.
constexpr size_t kHelpColumn = 30;
// Indent of the description of an option that reaches beyond that column.
constexpr size_t kHelpIndent = 6;

// The bytes of as many whole characters as fit.
size_t BytesThatFit(absl::string_view text, size_t columns) {
  size_t bytes = 0;
  for (size_t count = 0; bytes < text.size(); ++bytes)
    if (!ContinuesCharacter(text[bytes]) && ++count > columns) break;
  return bytes;
}

// A word's pieces, of which only the last may be followed by another word on its line.
std::vector<absl::string_view> Pieces(absl::string_view word, size_t columns) {
  std::vector<absl::string_view> pieces;
  for (size_t fit; (fit = BytesThatFit(word, columns)) < word.size();) {
    const size_t comma = word.substr(0, fit).rfind(',');
    const size_t end = comma == absl::string_view::npos ? fit : comma + 1;
    pieces.push_back(word.substr(0, end));
    word.remove_prefix(end);
  }
  pieces.push_back(word);
  return pieces;
}

// Returns the indent for the continuation of a broken --help line.
size_t IndentOf(absl::string_view line) {
  if (line.size() > kHelpColumn && line[kHelpColumn - 1] == ' ' && absl::StartsWith(line, "  "))
    return kHelpColumn;
  return absl::StartsWith(line, "  ") ? kHelpIndent : 0;
}

}  // namespace

size_t Columns(absl::string_view text) {
  return text.size() -
         static_cast<size_t>(std::count_if(text.begin(), text.end(), ContinuesCharacter));
}

std::vector<std::string> WrapText(absl::string_view text, size_t columns) {
  if (columns == 0 || Columns(text) <= columns) return {std::string(text)};
  std::vector<std::string> lines;
  std::string line;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    for (const absl::string_view piece : Pieces(word, columns)) {
      if (!line.empty() && Columns(line) + 1 + Columns(piece) > columns)
        lines.push_back(std::exchange(line, ""));
      // Pieces of one word fill their lines, so that no space comes between two of them.
      absl::StrAppend(&line, line.empty() ? "" : " ", piece);
    }
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string FitHelp(absl::string_view text, size_t columns) {
  std::string fitted;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (columns == 0 || Columns(line) <= columns) {
      absl::StrAppend(&fitted, line, "\n");
      continue;
    }
    const size_t indent = IndentOf(line);
    const size_t kept = indent == kHelpColumn ? kHelpColumn : 0;
    const size_t spaces = line.find_first_not_of(' ', kept) - kept;  // before the words
    std::string before = absl::StrCat(line.substr(0, kept), std::string(spaces, ' '));
    const size_t room = columns - std::max(indent, before.size());
    for (const std::string& piece : WrapText(line.substr(before.size()), room)) {
      absl::StrAppend(&fitted, before, piece, "\n");
      before = std::string(indent, ' ');
    }
  }
  fitted.pop_back();  // StrSplit gives an empty line behind the last newline
  return fitted;
}

}  // namespace warpcall
