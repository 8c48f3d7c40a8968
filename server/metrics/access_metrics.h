// Metrics of who was kept out, of files that could not be read again, and of certificates.
#pragma once

#include <string>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/engine/metrics_sink.h"

namespace warpcall {

void AppendAuthRefusals(const std::vector<LabelledCount>& by_reason,
                        std::vector<prometheus::MetricFamily>* families);
// Nothing where no principal has a label of its own.
void AppendPrincipalCalls(const std::vector<LabelledCount>& by_principal,
                          std::vector<prometheus::MetricFamily>* families);
void AppendReloadFailures(const std::vector<LabelledCount>& by_flag,
                          std::vector<prometheus::MetricFamily>* families);

// When the certificate in `file` ends, in seconds since 1970.
struct CertificateExpiry {
  std::string file;
  double unix_seconds = 0;
};
// Nothing without certificates.
void AppendCertificateExpiries(const std::vector<CertificateExpiry>& expiries,
                               std::vector<prometheus::MetricFamily>* families);

}  // namespace warpcall
