#include "server/metrics/text_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/series_table.h"

namespace warpcall {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::string Number(double value) {
  std::string text;
  AppendNumber(value, &text);
  return text;
}

TEST(TextFormat, NumbersReadBackAsTheyWere) {
  std::mt19937_64 random(std::random_device{}());
  std::vector<double> values = {0, -0.0, 1, 0.1, 1e-9, 1e15, 5e-324, 1.7976931348623157e308};
  for (int i = 0; i < 10'000; ++i)
    values.push_back(std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200)));
  for (const double value : values) {
    double read = -1;
    ASSERT_TRUE(absl::SimpleAtod(Number(value), &read)) << Number(value);
    EXPECT_EQ(read, value) << Number(value);
  }
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(Number(-std::numeric_limits<double>::infinity()), "-Inf");
  EXPECT_EQ(Number(std::nan("")), "NaN");
  std::string integer;
  AppendNumber(std::numeric_limits<uint64_t>::max(), &integer);
  EXPECT_EQ(integer, "18446744073709551615");
}

// A text as SeriesTable fills it, and its equal for the library's serializer.
struct Expected {
  std::vector<MetricFamily> families;

  prometheus::ClientMetric* Add(const std::string& name, MetricType type, const Labels& labels) {
    if (families.empty() || families.back().name != name)
      families.push_back({name, name + ", explained", type, {}});
    prometheus::ClientMetric& metric = families.back().metric.emplace_back();
    metric.label = labels;
    return &metric;
  }

  // `count` observations of `ns` each.
  void AddDurations(const std::string& name, const Labels& labels, uint64_t count, int64_t ns) {
    prometheus::ClientMetric::Histogram& histogram =
        Add(name, MetricType::Histogram, labels)->histogram;
    histogram.sample_count = count;
    histogram.sample_sum = static_cast<double>(count) * static_cast<double>(ns) / 1e9;
    for (int i = 0; i < kBucketCount; ++i) {
      const bool bounded = i < kBoundedBucketCount;
      histogram.bucket.push_back({!bounded || ns <= BucketUpperBoundNs(i) ? count : 0,
                                  bounded ? static_cast<double>(BucketUpperBoundNs(i)) / 1e9
                                          : std::numeric_limits<double>::infinity()});
    }
  }
};

// Same lines in the same order, with numbers that read alike (the library's have 16 digits).
void ExpectSameText(const std::string& text, const std::string& library_text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> library_lines = absl::StrSplit(library_text, '\n');
  ASSERT_EQ(lines.size(), library_lines.size()) << text << library_text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] == library_lines[i]) continue;
    const size_t blank = lines[i].rfind(' ');
    double value = -1, library_value = -2;
    ASSERT_NE(lines[i][0], '#') << lines[i];
    EXPECT_EQ(lines[i].substr(0, blank), library_lines[i].substr(0, library_lines[i].rfind(' ')));
    EXPECT_TRUE(absl::SimpleAtod(lines[i].substr(blank + 1), &value)) << lines[i];
    EXPECT_TRUE(absl::SimpleAtod(library_lines[i].substr(blank + 1), &library_value));
    EXPECT_DOUBLE_EQ(value, library_value) << lines[i];
  }
}

TEST(TextFormat, TheTableWritesWhatTheLibraryWould) {
  const std::vector<Labels> label_sets = {
      {},
      {{"kernel", "gelu"}},
      {{"kernel", "a \"quoted\" name"}, {"device", "back\\slash"}},
      {{"kernel", "two\nlines, {braces} and a=b"}, {"device", ""}},
  };
  const struct {
    SeriesTable::Kind kind;
    const char* name;
    MetricType type;
  } kFamilies[] = {{SeriesTable::Kind::kCounter, "c_total", MetricType::Counter},
                   {SeriesTable::Kind::kRealCounter, "r_total", MetricType::Counter},
                   {SeriesTable::Kind::kGauge, "g_ratio", MetricType::Gauge}};
  SeriesTable table;
  Expected expected;
  for (const auto& family : kFamilies) {
    table.BeginFamily(family.kind, family.name, (std::string(family.name) + ", explained").c_str());
    for (const Labels& labels : label_sets) table.AddSeries(labels);
  }
  table.BeginFamily(SeriesTable::Kind::kDurations, "d_seconds", "d_seconds, explained");
  Cell durations = kNoCell;
  for (const Labels& labels : label_sets) durations = std::min(durations, table.AddSeries(labels));
  table.Close();

  std::mt19937_64 random(std::random_device{}());
  for (const auto& family : kFamilies) {
    for (Cell cell = 0; cell < label_sets.size(); ++cell) {
      // The library counts in doubles.
      const uint64_t integer = random() >> (11 + random() % 40);
      const double real = static_cast<double>(random()) * std::pow(10, random() % 20) / 1e12;
      prometheus::ClientMetric* const metric =
          expected.Add(family.name, family.type, label_sets[cell]);
      if (family.kind == SeriesTable::Kind::kCounter) {
        table.Add(cell, integer);
        metric->counter.value = static_cast<double>(integer);
      } else if (family.kind == SeriesTable::Kind::kRealCounter) {
        table.AddReal(cell, real);
        metric->counter.value = real;
      } else {
        table.Set(cell, real);
        metric->gauge.value = real;
      }
    }
  }
  for (size_t i = 0; i < label_sets.size(); ++i) {
    const auto ns = static_cast<int64_t>(random() >> (64 - 1 - 35 * i / 3));
    const uint64_t count = 1 + random() % 100;
    const Cell cell = durations + static_cast<Cell>(i) * (kBucketCount + 1);
    for (uint64_t k = 0; k < count; ++k) table.Observe(cell, ns);
    expected.AddDurations("d_seconds", label_sets[i], count, ns);
  }
  std::string text;
  table.AppendText(MetricsFormat::kPrometheus, &text);
  ExpectSameText(text, prometheus::TextSerializer().Serialize(expected.families));
  std::string open;
  table.AppendText(MetricsFormat::kOpenMetrics, &open);
  EXPECT_EQ(open, ToOpenMetrics(text));
}

TEST(TextFormat, OpenMetricsNamesCountersFamiliesWithoutTheirSuffix) {
  EXPECT_EQ(
      ToOpenMetrics("# HELP a_total Of x_total all.\n# TYPE a_total counter\na_total 1\n"
                    "# HELP b_ratio b\n# TYPE b_ratio gauge\nb_ratio{c=\"# HELP d_total x\"} 2\n"),
      "# HELP a Of x_total all.\n# TYPE a counter\na_total 1\n"
      "# HELP b_ratio b\n# TYPE b_ratio gauge\nb_ratio{c=\"# HELP d_total x\"} 2\n");
  EXPECT_EQ(ToOpenMetrics(""), "");
}

TEST(TextFormat, AnExemplarHasTheTraceTheSecondsAndWhen) {
  Exemplar exemplar{{}, 1'500, 1'700'000'000'004'999'999};
  exemplar.trace_id.fill(0xab);
  std::string text = "b 1";
  AppendExemplar(exemplar, &text);
  EXPECT_EQ(text, "b 1 # {trace_id=\"abababababababababababababababab\"} 1.5e-06 1700000000.004");
}

}  // namespace
}  // namespace warpcall
