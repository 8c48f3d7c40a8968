#include "server/metrics/text_format.h"

#include <charconv>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

// Any number's shortest text: a sign, 17 digits, a point, "e-308".
constexpr size_t kNumberBytesMax = 32;

constexpr absl::string_view kCounterSuffix = "_total";

const char* TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Gauge:
      return "gauge";
    case prometheus::MetricType::Summary:
      return "summary";
    case prometheus::MetricType::Histogram:
      return "histogram";
    case prometheus::MetricType::Untyped:
      break;
  }
  return "untyped";
}

template <typename T>
void AppendShortest(T value, std::string* text) {
  char digits[kNumberBytesMax];
  text->append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

std::string LabelText(const Labels& labels) {
  std::string text;
  for (const prometheus::ClientMetric::Label& label : labels) {
    absl::StrAppend(
        &text, text.empty() ? "" : ",", label.name, "=\"",
        absl::StrReplaceAll(label.value, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\"", "\\\""}}), "\"");
  }
  return text;
}

std::string FamilyHead(absl::string_view name, absl::string_view help, prometheus::MetricType type,
                       MetricsFormat format) {
  WARPCALL_DCHECK(help.find_first_of("\n\\\"") == absl::string_view::npos, name, help);
  if (format == MetricsFormat::kOpenMetrics && type == prometheus::MetricType::Counter)
    absl::ConsumeSuffix(&name, kCounterSuffix);
  return absl::StrCat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", TypeName(type), "\n");
}

std::string ToOpenMetrics(absl::string_view text) {
  std::string open;
  open.reserve(text.size());
  absl::ConsumeSuffix(&text, "\n");
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    const bool is_head = words[0] == "#" && words.size() == 4;
    if (is_head && absl::EndsWith(words[2], kCounterSuffix))
      absl::StrAppend(&open, "# ", words[1], " ", absl::StripSuffix(words[2], kCounterSuffix), " ",
                      words[3], "\n");
    else
      absl::StrAppend(&open, line, "\n");
  }
  return open;
}

void AppendExemplar(const Exemplar& exemplar, std::string* text) {
  absl::StrAppend(text, " # {trace_id=\"",
                  absl::BytesToHexString({reinterpret_cast<const char*>(exemplar.trace_id.data()),
                                          exemplar.trace_id.size()}),
                  "\"} ");
  AppendNumber(static_cast<double>(exemplar.ns) / 1e9, text);
  absl::StrAppendFormat(text, " %d.%03d", exemplar.unix_ns / 1'000'000'000,
                        exemplar.unix_ns / 1'000'000 % 1000);
}

void AppendNumber(uint64_t value, std::string* text) { AppendShortest(value, text); }

void AppendNumber(double value, std::string* text) {
  if (std::isfinite(value)) return AppendShortest(value, text);
  text->append(std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}

}  // namespace warpcall
