#include "client/cli/common/table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace warpcall::cli {
namespace {

// Values that would print as 1000 of one unit are given in the next.
constexpr double kRoundsToThousand = 999.5;

std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f", decimals, value);
}

// `units` from small to large, each `step` of the one before.
std::string Scaled(double value, double step, absl::Span<const char* const> units) {
  if (!std::isfinite(value)) return "-";
  size_t unit = 0;
  for (; unit + 1 < units.size() && value >= std::max(kRoundsToThousand, step - 0.5); ++unit)
    value /= step;
  const bool whole = unit == 0 && value == std::trunc(value);
  return absl::StrCat(whole ? absl::StrFormat("%.0f", value) : ThreeDigits(value), " ",
                      units[unit]);
}

// Where the character with this number begins.
size_t ByteOf(const std::string& text, size_t character) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte) {
    if ((static_cast<unsigned char>(text[byte]) & 0xC0) == 0x80) continue;
    if (character-- == 0) break;
  }
  return byte;
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

std::string HumanTime(double nanoseconds) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  return Scaled(nanoseconds, 1000, kUnits);
}

std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return Scaled(bytes, 1024, kUnits);
}

std::string HumanRate(double per_second, const char* unit) {
  if (!(per_second > 0)) return "-";
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  return absl::StrCat(Scaled(per_second, 1000, kPrefixes), unit);
}

}  // namespace warpcall::cli
