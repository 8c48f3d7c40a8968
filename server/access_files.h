// The files that say who may call, opened as the flags name them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/callers.h"
#include "server/access/gate.h"
#include "server/access/policies.h"
#include "server/config.h"
#include "server/metrics/access_metrics.h"
#include "server/reload.h"
#include "server/transport/certificates.h"

namespace warpcall {

struct AccessFiles {
  std::string certificate_file;                // --tls_cert
  std::unique_ptr<Certificates> certificates;  // null: no TLS
  std::unique_ptr<Callers> callers;            // null: no tokens
  std::unique_ptr<Policies> policies;          // null: everybody may do everything
  std::unique_ptr<Gate> gate;                  // by the others
};

// Has `reloader` read them again, as long as what is returned lives. Errors name flag and file.
absl::StatusOr<AccessFiles> OpenAccessFiles(const Config& config, Reloader* reloader);

// Of the server's certificate, if it has one.
std::vector<CertificateExpiry> CertificateExpiries(const AccessFiles& files);

// Returns the error of OpenAccessFiles; keeps nothing open.
absl::Status CheckAccessFiles(const Config& config);

// How often the gate kept calls out, by reason.
std::vector<LabelledCount> AuthRefusals(const Gate& gate);

// How many calls came, by principal: see Gate::calls_by_label.
std::vector<LabelledCount> PrincipalCalls(const Gate& gate);

}  // namespace warpcall
