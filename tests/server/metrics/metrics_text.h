// Reads the text of /metrics.
#pragma once

#include <map>
#include <string>
#include <vector>

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

// Sums the samples of `name` whose labels contain each of `labels`.
double SumOf(const Samples& samples, absl::string_view name,
             const std::vector<std::string>& labels = {});

}  // namespace warpcall::testing
