#include "tests/server/metrics/metrics_text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall::testing {
namespace {

// Labels hold no comma and no escaped character in these tests.
std::string SortLabels(absl::string_view series) {
  const size_t brace = series.find('{');
  if (brace == absl::string_view::npos) return std::string(series);
  absl::string_view inside = series.substr(brace + 1);
  EXPECT_TRUE(absl::ConsumeSuffix(&inside, "}")) << series;
  std::vector<absl::string_view> labels = absl::StrSplit(inside, ',');
  std::sort(labels.begin(), labels.end());
  return absl::StrCat(series.substr(0, brace), "{", absl::StrJoin(labels, ","), "}");
}

std::string FamilyOf(absl::string_view series, const std::map<std::string, std::string>& types) {
  absl::string_view name = series.substr(0, series.find('{'));
  for (const absl::string_view suffix : {"_bucket", "_sum", "_count"}) {
    absl::string_view stem = name;
    if (!absl::ConsumeSuffix(&stem, suffix)) continue;
    const auto found = types.find(std::string(stem));
    if (found != types.end() && found->second == "histogram") return std::string(stem);
  }
  return std::string(name);
}

}  // namespace

MetricsText ParseMetricsText(absl::string_view text) {
  MetricsText result;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "# TYPE ")) {
      const std::pair<std::string, std::string> type =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      EXPECT_TRUE(result.types.insert(type).second) << "family stands twice: " << line;
      continue;
    }
    if (absl::StartsWith(line, "# HELP ")) continue;
    const size_t blank = line.rfind(' ');
    double value = 0;
    if (blank == absl::string_view::npos || !absl::SimpleAtod(line.substr(blank + 1), &value)) {
      ADD_FAILURE() << "no sample: " << line;
      continue;
    }
    const std::string series = SortLabels(line.substr(0, blank));
    EXPECT_TRUE(result.samples.emplace(series, value).second) << "stands twice: " << series;
    EXPECT_EQ(result.types.count(FamilyOf(series, result.types)), 1u) << "no type: " << series;
  }
  return result;
}

double SumOf(const Samples& samples, absl::string_view name,
             const std::vector<std::string>& labels) {
  double sum = 0;
  for (const auto& [series, value] : samples) {
    bool matches = series == name || absl::StartsWith(series, absl::StrCat(name, "{"));
    for (const std::string& label : labels) matches = matches && absl::StrContains(series, label);
    if (matches) sum += value;
  }
  return sum;
}

}  // namespace warpcall::testing
