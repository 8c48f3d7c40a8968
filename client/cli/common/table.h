// Tables and figures for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/common/screen.h"
#include "proto/common/human_figures.h"

namespace warpcall::cli {

// Rows of text in columns that are as wide as their widest cell, two spaces apart; the first row is
// the heading. A table that is wider than the screen loses nothing: its widest column of text is
// broken into lines; or the last one, if it is text, stands below its row; or the columns that do
// not fit follow in tables of their own, with what names the rows. Text is shown as Printable.
class Table {
 public:
  enum class Align : uint8_t { kLeft, kRight };

  struct Column {
    // Behind a '>' stands the heading of figures, which are aligned to the right.
    Column(const char* text)  // NOLINT: a list of headings is a list of columns
        : heading(text[0] == '>' ? text + 1 : text),
          align(text[0] == '>' ? Align::kRight : Align::kLeft) {}
    Column(std::string text, Align alignment) : heading(std::move(text)), align(alignment) {}

    std::string heading;
    Align align;
  };

  explicit Table(std::vector<Column> columns);
  // As many cells as there are columns.
  void AddRow(std::vector<std::string> cells);
  // A row whose first cells stand in their columns, before text that runs over all others and
  // widens none.
  void AddNote(std::vector<std::string> cells, std::string text);
  // The table as text, with a newline after each line and no spaces at its end.
  std::string ToString() const { return ToString(OutScreen()); }
  std::string ToString(const Screen& screen) const;

 private:
  friend class TableLayout;

  struct Row {
    std::vector<std::string> cells;
    std::string note;  // after the cells, of any width
  };

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// At most `width` characters, at least 5: what is longer loses its middle to "...".
std::string CutMiddle(const std::string& text, size_t width);

}  // namespace warpcall::cli
