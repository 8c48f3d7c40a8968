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
                              "Calls refused for their credentials or by the policy, and TLS "
                              "handshakes refused for the client's certificate.",
                              "reason", by_reason));
}

void AppendPrincipalCalls(const std::vector<LabelledCount>& by_principal,
                          std::vector<prometheus::MetricFamily>* families) {
  if (by_principal.empty()) return;
  families->push_back(Counter("warpcall_principal_requests_total",
                              "Calls of each principal that the policy names, admitted or refused "
                              "for its own limits; of all others under an empty name.",
                              "principal", by_principal));
}

void AppendReloadFailures(const std::vector<LabelledCount>& by_flag,
                          std::vector<prometheus::MetricFamily>* families) {
  families->push_back(
      Counter("warpcall_reload_failures_total",
              "Failed reloads of a file, after which its previous content stayed in force.", "flag",
              by_flag));
}

void AppendCertificateExpiries(const std::vector<CertificateExpiry>& expiries,
                               std::vector<prometheus::MetricFamily>* families) {
  if (expiries.empty()) return;
  prometheus::MetricFamily& family = families->emplace_back();
  family.name = "warpcall_certificate_expiry_seconds";
  family.help = "Expiry of the certificate in the file, seconds since 1970.";
  family.type = prometheus::MetricType::Gauge;
  for (const CertificateExpiry& expiry : expiries) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"file", expiry.file}};
    metric.gauge.value = expiry.unix_seconds;
  }
}

}  // namespace warpcall
