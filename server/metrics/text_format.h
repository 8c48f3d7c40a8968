// Pieces of Prometheus' text exposition format 0.0.4. Where thousands of samples are written, they
// are put together from these: what does not change is made once, and only numbers each time.
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_type.h"

namespace warpcall {

using Labels = std::vector<prometheus::ClientMetric::Label>;

// `key="value",...`, values escaped; empty for none.
std::string LabelText(const Labels& labels);

// The lines before a family's samples. REQUIRES: `help` holds no line break and no backslash.
std::string FamilyHead(absl::string_view name, absl::string_view help, prometheus::MetricType type);

// The shortest text that reads back as `value`.
void AppendNumber(uint64_t value, std::string* text);
void AppendNumber(double value, std::string* text);

}  // namespace warpcall
