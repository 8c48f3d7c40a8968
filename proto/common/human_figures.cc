#include "proto/common/human_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace warpcall {
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

}  // namespace

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

}  // namespace warpcall
