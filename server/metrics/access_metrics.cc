#include "server/metrics/access_metrics.h"

#include <utility>

namespace warpcall {
namespace {

prometheus::MetricFamily Counter(const char* name, const char* help, const char* label,
                                 const std::vector<LabelledCount>& counts) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Counter;
  for (const LabelledCount& count : counts) {
    prometheus::ClientMetric metric;
    metric.label = {{label, count.label}};
    metric.counter.value = static_cast<double>(count.count);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

void AppendAuthRefusals(const std::vector<LabelledCount>& by_reason,
                        std::vector<prometheus::MetricFamily>* families) {
  families->push_back(Counter("warpcall_auth_refusals_total",
                              "Calls that were kept out for who makes them, or for what the policy "
                              "does not let them do.",
                              "reason", by_reason));
}

void AppendReloadFailures(const std::vector<LabelledCount>& by_flag,
                          std::vector<prometheus::MetricFamily>* families) {
  families->push_back(Counter("warpcall_reload_failures_total",
                              "Times that a file could not be read again, so that what it said "
                              "before stayed in force.",
                              "flag", by_flag));
}

}  // namespace warpcall
