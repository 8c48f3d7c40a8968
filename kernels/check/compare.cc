#include "kernels/check/compare.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/common/dispatch.h"

namespace warpcall {
namespace {

constexpr int kShownMax = 5;

bool Agrees(double actual, double expected, Tolerance tolerance) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  const double bound = tolerance.absolute + tolerance.relative * std::fabs(expected);
  return std::isfinite(actual) && std::fabs(actual - expected) <= bound;
}

}  // namespace

Disagreement Compare(const TensorSpec& spec, const void* actual, const void* expected,
                     Tolerance tolerance) {
  Disagreement result;
  DispatchDataType(spec.data_type, [&]<typename T>(T) {
    for (int64_t i = 0, n = spec.elements(); i < n; ++i) {
      const double a = ToFloat(static_cast<const T*>(actual)[i]);
      const double e = ToFloat(static_cast<const T*>(expected)[i]);
      if (Agrees(a, e, tolerance) || ++result.wrong > kShownMax) continue;
      absl::StrAppend(&result.text, "element ", i, " of ", ToString(spec), " is ", a, ", expected ",
                      e, " within ", tolerance.absolute, " + ", tolerance.relative,
                      " x |expected|; off by ", std::fabs(a - e), "\n");
    }
  });
  return result;
}

double MagnitudeOf(const TensorSpec& spec, const void* data) {
  double magnitude = 0;
  DispatchDataType(spec.data_type, [&]<typename T>(T) {
    for (int64_t i = 0, n = spec.elements(); i < n; ++i) {
      const double value = std::fabs(ToFloat(static_cast<const T*>(data)[i]));
      if (std::isfinite(value)) magnitude = std::max(magnitude, value);
    }
  });
  return magnitude;
}

}  // namespace warpcall
