// Pieces of Prometheus' text exposition format 0.0.4 and of OpenMetrics 1.0. Where thousands of
// samples are written, they are put together from these: what does not change is made once, and
// only numbers each time.
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
// https://prometheus.io/docs/specs/om/open_metrics_spec/
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_type.h"
#include "server/metrics/exemplars.h"

namespace warpcall {

enum class MetricsFormat : uint8_t { kPrometheus, kOpenMetrics };

using Labels = std::vector<prometheus::ClientMetric::Label>;

// `key="value",...`, values escaped; empty for none.
std::string LabelText(const Labels& labels);

// The lines before a family's samples; OpenMetrics has the family of a counter's samples "x_total"
// as "x". REQUIRES: `help` holds no line break, no backslash and no quotation mark.
std::string FamilyHead(absl::string_view name, absl::string_view help, prometheus::MetricType type,
                       MetricsFormat format);

// Families of counters, gauges and histograms, written as Prometheus' text, in OpenMetrics: they
// differ in heads alone.
std::string ToOpenMetrics(absl::string_view text);

// Appends the exemplar after a bucket's value: " # {trace_id=...} value time". Only OpenMetrics has
// exemplars.
void AppendExemplar(const Exemplar& exemplar, std::string* text);

// The shortest text that reads back as `value`.
void AppendNumber(uint64_t value, std::string* text);
void AppendNumber(double value, std::string* text);

}  // namespace warpcall
