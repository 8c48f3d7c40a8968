#include "client/cli/bench/axis.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace warpcall::cli {
namespace {

// More do not fit side by side.
constexpr int kTicksMax = 7;
// Share of the axis that stays free on either side of the values.
constexpr double kRoom = 0.06;

// Exponents of `base` between which the values lie, with room, at least `width_min` apart.
struct Exponents {
  double low;
  double high;
};

Exponents Span(absl::Span<const double> values, double base, double width_min) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  double low = std::log(*least) / std::log(base);
  double high = std::log(*most) / std::log(base);
  const double missing = std::max(0.0, width_min - (high - low));
  low -= missing / 2;
  high += missing / 2;
  const double room = kRoom * (high - low);
  return {low - room, high + room};
}

Axis LogAxis(const Exponents& exponents, double base) {
  return {.logarithmic = true,
          .low = std::pow(base, exponents.low),
          .high = std::pow(base, exponents.high)};
}

// Whole exponents within, every so many that there are few enough.
std::vector<int> WholeExponents(const Exponents& exponents) {
  const int first = static_cast<int>(std::ceil(exponents.low));
  const int last = static_cast<int>(std::floor(exponents.high));
  const int step = std::max(1, (last - first + kTicksMax) / kTicksMax);
  std::vector<int> whole;
  for (int exponent = first; exponent <= last; ++exponent)
    if (exponent % step == 0) whole.push_back(exponent);
  return whole;
}

std::string Scaled(double value, double step, absl::Span<const char* const> units) {
  size_t unit = 0;
  for (; unit + 1 < units.size() && value >= step * (1 - 1e-9); ++unit) value /= step;
  return absl::StrFormat("%.4g%s%s", value, units[unit][0] == '\0' ? "" : " ", units[unit]);
}

}  // namespace

double Axis::Place(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Axis DecimalAxis(absl::Span<const double> values, Label label) {
  const Exponents exponents = Span(values, 10, 1);
  Axis axis = LogAxis(exponents, 10);
  const std::vector<int> whole = WholeExponents(exponents);
  if (exponents.high - exponents.low > 2.5) {
    for (const int exponent : whole) {
      const double value = std::pow(10, exponent);
      axis.ticks.push_back({value, label(value)});
    }
    return axis;
  }
  for (int exponent = static_cast<int>(std::floor(exponents.low)); exponent <= exponents.high;
       ++exponent) {
    for (const int digit : {1, 2, 5}) {
      const double value = digit * std::pow(10, exponent);
      if (value >= axis.low && value <= axis.high) axis.ticks.push_back({value, label(value)});
    }
  }
  return axis;
}

Axis BinaryAxis(absl::Span<const double> values, Label label) {
  const Exponents exponents = Span(values, 2, 4);
  Axis axis = LogAxis(exponents, 2);
  for (const int exponent : WholeExponents(exponents)) {
    const double value = std::exp2(exponent);
    axis.ticks.push_back({value, label(value)});
  }
  return axis;
}

Axis EvenAxis(absl::Span<const double> values, double high_min, Label label) {
  double most = high_min;
  for (const double value : values) most = std::max(most, value * (1 + kRoom));
  // The least step of 1, 2 or 5 that leaves few enough ticks.
  double step = std::pow(10, std::floor(std::log10(most)) - 1);
  for (int i = 0; most / step > kTicksMax; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  Axis axis{.logarithmic = false, .low = 0, .high = most};
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i)
    axis.ticks.push_back({i * step, label(i * step)});
  return axis;
}

std::string TimeLabel(double nanoseconds) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  return Scaled(nanoseconds, 1000, kUnits);
}

std::string BytesLabel(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return Scaled(bytes, 1024, kUnits);
}

std::string CountLabel(double value) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  return Scaled(value, 1000, kPrefixes);
}

std::string PlainLabel(double value) { return absl::StrFormat("%g", value); }

std::string SizeLabel(double value) { return absl::StrFormat("%.0f", value); }

std::string PercentLabel(double share) { return absl::StrFormat("%.4g%%", share * 100); }

}  // namespace warpcall::cli
