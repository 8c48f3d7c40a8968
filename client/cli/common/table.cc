#include "client/cli/common/table.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace warpcall::cli {
namespace {

// Returns the byte at which the character with this number begins.
size_t ByteOf(const std::string& text, size_t character) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte) {
    if ((static_cast<unsigned char>(text[byte]) & 0xC0) == 0x80) continue;
    if (character-- == 0) break;
  }
  return byte;
}

constexpr size_t kGap = 2;  // between columns
// Text in a narrower column is a column of words.
constexpr size_t kTableTextMin = 24;
constexpr size_t kBelowRowIndent = 4;

// Cells of one row, each in the lines that it was broken into.
using Lines = std::vector<std::vector<std::string>>;

void AppendLine(std::string line, std::string* text) {
  line.erase(line.find_last_not_of(' ') + 1);
  absl::StrAppend(text, line, "\n");
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  AddRow(std::move(headings));
}

void Table::AddRow(std::vector<std::string> cells) { AddNote(std::move(cells), ""); }

void Table::AddNote(std::vector<std::string> cells, std::string text) {
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back({std::move(cells), Printable(text)});
}

std::string CutMiddle(const std::string& text, size_t width) {
  const size_t characters = Columns(text);
  if (characters <= width) return text;
  const size_t kept = width - 3;
  const size_t tail = kept / 2;
  return absl::StrCat(text.substr(0, ByteOf(text, kept - tail)), "...",
                      text.substr(ByteOf(text, characters - tail)));
}

class TableLayout {
 public:
  TableLayout(const Table& table, const Screen& screen)
      : table_(table), screen_(screen), widths_(table.columns_.size(), 0) {
    for (const Table::Row& row : table.rows_)
      for (size_t i = 0; i < row.cells.size(); ++i)
        widths_[i] = std::max(widths_[i], Columns(row.cells[i]));
  }

  std::string ToString() {
    std::string text;
    for (const Part& part : Divide()) {
      absl::StrAppend(&text, text.empty() ? "" : "\n");
      for (size_t i = 0; i < table_.rows_.size(); ++i) Print(part, i, &text);
    }
    return text;
  }

 private:
  // Columns that stand side by side.
  struct Part {
    std::vector<size_t> columns;
    bool last_below = false;  // the table's last column follows each row, on lines of its own
    bool with_notes = true;
  };

  bool IsText(size_t column) const { return table_.columns_[column].align == Table::Align::kLeft; }

  size_t Width(const std::vector<size_t>& columns) const {
    size_t width = 0;
    for (const size_t column : columns) width += widths_[column] + kGap;
    return columns.empty() ? 0 : width - kGap;
  }

  bool Fits(const std::vector<size_t>& columns) const {
    return screen_.columns == 0 || Width(columns) <= screen_.columns;
  }

  // True if the columns fit. If they do not, narrows the widest column of text and returns whether
  // they fit then.
  bool MakeFit(const std::vector<size_t>& columns) {
    if (Fits(columns)) return true;
    std::optional<size_t> widest;
    for (const size_t column : columns)
      if (IsText(column) && widths_[column] > (widest.has_value() ? widths_[*widest] : 0))
        widest = column;
    if (!widest.has_value()) return false;
    const size_t others = Width(columns) - widths_[*widest];
    if (others + kTableTextMin > screen_.columns) return false;
    widths_[*widest] = screen_.columns - others;
    return true;
  }

  std::vector<Part> Divide() {
    std::vector<size_t> columns;
    for (size_t i = 0; i < widths_.size(); ++i) columns.push_back(i);
    if (MakeFit(columns)) return {{.columns = columns}};
    const size_t last = columns.back();
    if (columns.size() > 1 && IsText(last)) {
      columns.pop_back();
      if (MakeFit(columns)) return {{.columns = columns, .last_below = true}};
      columns.push_back(last);
    }
    return Fold(columns);
  }

  // One part after the other takes what fits beside the columns that name the rows.
  std::vector<Part> Fold(const std::vector<size_t>& columns) {
    const size_t names_max = screen_.columns * 3 / 5;
    for (const size_t column : columns)
      if (IsText(column)) widths_[column] = std::min(widths_[column], names_max);
    std::vector<size_t> names;
    const bool several_rows = table_.rows_.size() > 2;
    for (size_t i = 0; several_rows && i < columns.size() && IsText(i); ++i) {
      names.push_back(i);
      if (Width(names) <= names_max) continue;
      names.pop_back();
      break;
    }
    const size_t room = screen_.columns - (names.empty() ? 0 : Width(names) + kGap);
    for (size_t i = names.size(); i < columns.size(); ++i)
      if (IsText(i)) widths_[i] = std::min(widths_[i], room);
    std::vector<Part> parts = {{.columns = names}};
    for (size_t i = names.size(); i < columns.size(); ++i) {
      std::vector<size_t>& current = parts.back().columns;
      current.push_back(i);
      if (Fits(current) || current.size() == 1) continue;
      if (current.size() == names.size() + 1) continue;  // no part would be wide enough
      current.pop_back();
      parts.push_back({.columns = names, .with_notes = false});
      parts.back().columns.push_back(i);
    }
    return parts;
  }

  std::string Line(const Part& part, const Lines& cells, size_t number) const {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const size_t column = part.columns[i];
      const std::string cell = number < cells[i].size() ? cells[i][number] : "";
      const size_t filled = Columns(cell);
      const std::string padding(widths_[column] > filled ? widths_[column] - filled : 0, ' ');
      absl::StrAppend(&line, i == 0 ? "" : std::string(kGap, ' '), IsText(column) ? "" : padding,
                      cell, IsText(column) ? padding : "");
    }
    return line;
  }

  // Text behind the cells of a row, or below it.
  void PrintText(const std::string& line, const std::string& note, std::string* text) const {
    const size_t begin = line.empty() ? 0 : Columns(line) + kGap;
    const bool beside = screen_.columns == 0 || begin + kTableTextMin <= screen_.columns;
    const size_t indent = beside ? begin : kBelowRowIndent;
    if (!beside) AppendLine(line, text);
    bool first = beside;
    for (const std::string& piece :
         WrapText(note, screen_.columns == 0 ? 0 : screen_.columns - indent)) {
      const std::string before = first && !line.empty() ? absl::StrCat(line, std::string(kGap, ' '))
                                                        : std::string(indent, ' ');
      AppendLine(absl::StrCat(before, piece), text);
      first = false;
    }
  }

  void Print(const Part& part, size_t number, std::string* text) const {
    const Table::Row& row = table_.rows_[number];
    if (!row.note.empty() && !part.with_notes) return;
    Lines cells;
    size_t height = 1;
    for (const size_t column : part.columns) {
      if (column >= row.cells.size()) break;
      cells.push_back(WrapText(row.cells[column], widths_[column]));
      height = std::max(height, cells.back().size());
    }
    if (!row.note.empty() && height == 1) return PrintText(Line(part, cells, 0), row.note, text);
    const bool heading = number == 0;
    for (size_t i = 0; i < height; ++i) {
      std::string line = Line(part, cells, i);
      line.erase(line.find_last_not_of(' ') + 1);
      AppendLine(heading ? Emphasised(line, Emphasis::kHeading, screen_) : line, text);
    }
    std::string below = row.note;
    if (part.last_below && row.note.empty())
      below =
          heading ? Emphasised(row.cells.back(), Emphasis::kHeading, screen_) : row.cells.back();
    if (!below.empty()) PrintText(std::string(kBelowRowIndent - kGap, ' '), below, text);
  }

  const Table& table_;
  const Screen& screen_;
  std::vector<size_t> widths_;
};

std::string Table::ToString(const Screen& screen) const {
  return TableLayout(*this, screen).ToString();
}

}  // namespace warpcall::cli
