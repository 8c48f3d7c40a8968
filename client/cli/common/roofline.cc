#include "client/cli/common/roofline.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {

void DrawCeiling(const Ceiling& ceiling, const Panel& panel, Svg* svg) {
  const double x_low = std::max(panel.x.low, panel.y.low / ceiling.bytes_per_second);
  const double x_high = std::min(panel.x.high, panel.y.high / ceiling.bytes_per_second);
  if (!(x_low < x_high)) return;
  const Point from = panel.At(x_low, x_low * ceiling.bytes_per_second);
  const Point to = panel.At(x_high, x_high * ceiling.bytes_per_second);
  svg->Line(from, to, kRoof);
  // Above the line, from its lower end on, where no point is near; if the line is long enough.
  constexpr double kAbove = 6;
  constexpr double kTextLength = 150;
  const double angle = std::atan2(to.y - from.y, to.x - from.x);
  const double begin = 10 + ceiling.number * 1.4 * kTextLength;
  if (std::hypot(to.x - from.x, to.y - from.y) < begin + kTextLength) return;
  const Point at = {from.x + begin * std::cos(angle) + kAbove * std::sin(angle),
                    from.y + begin * std::sin(angle) - kAbove * std::cos(angle)};
  svg->Text(
      at, absl::StrCat(ceiling.label, " ", HumanRate(ceiling.bytes_per_second, "B/s")),
      {.size = 11, .turned = angle * 180 / std::numbers::pi, .color = "#555555", .outlined = true});
}

}  // namespace warpcall::cli
