// Reads what /metrics returns.
#pragma once

#include <initializer_list>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall::testing {

// "name{label="value",...}" with labels in alphabetical order, or "name" -> value.
using Samples = std::map<std::string, double>;

struct MetricsText {
  Samples samples;
  std::map<std::string, std::string> types;  // family -> "counter", ...
};

// Fails the running test on a line that is neither comment nor sample, on a series that stands
// twice, on a family that stands twice, and on a sample before its family's type.
MetricsText ParseMetricsText(absl::string_view text);

// Sum over the samples of `name` that have all of `labels` (each as `label="value"`).
double SumOf(const Samples& samples, absl::string_view name,
             std::initializer_list<absl::string_view> labels);

}  // namespace warpcall::testing
