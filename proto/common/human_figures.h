// Figures for people: tables of the command and the server's page show them alike.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace warpcall {

namespace human_figures {

// Values that would print as 1000 of one unit are given in the next.
inline constexpr double kRoundsToThousand = 999.5;

inline std::string ThreeDigits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f", decimals, value);
}

// `units` from small to large, each `step` of the one before.
inline std::string Scaled(double value, double step, absl::Span<const char* const> units) {
  if (!std::isfinite(value)) return "-";
  size_t unit = 0;
  for (; unit + 1 < units.size() && value >= std::max(kRoundsToThousand, step - 0.5); ++unit)
    value /= step;
  const bool whole = unit == 0 && value == std::trunc(value);
  return absl::StrCat(whole ? absl::StrFormat("%.0f", value) : ThreeDigits(value), " ",
                      units[unit]);
}

}  // namespace human_figures

// Three significant digits and the unit that fits: "850 ns", "12.3 us", "1.20 s". Here and below
// "-" for what is no number or infinite.
inline std::string HumanTime(double nanoseconds) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  return human_figures::Scaled(nanoseconds, 1000, kUnits);
}

// Powers of 1024: "512 B", "16.0 MiB".
inline std::string HumanBytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return human_figures::Scaled(bytes, 1024, kUnits);
}

// Powers of 1000 before `unit`: HumanRate(4.3e12, "B/s") is "4.30 TB/s"; "-" for what is not above
// 0.
inline std::string HumanRate(double per_second, const char* unit) {
  if (!(per_second > 0)) return "-";
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  return absl::StrCat(human_figures::Scaled(per_second, 1000, kPrefixes), unit);
}

}  // namespace warpcall
