#include "server/metrics/text_format.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace warpcall {
namespace {

// Any number's shortest text: a sign, 17 digits, a point, "e-308".
constexpr size_t kNumberBytesMax = 32;

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

std::string FamilyHead(absl::string_view name, absl::string_view help,
                       prometheus::MetricType type) {
  return absl::StrCat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", TypeName(type), "\n");
}

void AppendNumber(uint64_t value, std::string* text) { AppendShortest(value, text); }

void AppendNumber(double value, std::string* text) {
  if (std::isfinite(value)) return AppendShortest(value, text);
  text->append(std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}

}  // namespace warpcall
