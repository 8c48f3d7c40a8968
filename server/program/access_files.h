// Opens the files of the access flags: certificates, tokens and policies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/callers.h"
#include "server/access/gate.h"
#include "server/access/policies.h"
#include "server/flags/config.h"
#include "server/metrics/access_metrics.h"
#include "server/program/reload.h"
#include "server/transport/certificates.h"

namespace warpcall {

struct AccessFiles {
  std::string certificate_file;                // --tls_cert
  std::unique_ptr<Certificates> certificates;  // null: no TLS
  std::unique_ptr<Callers> callers;            // null: no tokens
  std::unique_ptr<Policies> policies;          // null: every call may do everything
  std::unique_ptr<Gate> gate;                  // uses the others
};

// Registers the files with `reloader` until the result is destroyed; `config` outlives `reloader`.
// Errors name flag and file. Logs a warning, now and after each reload, for a certificate that ends
// soon, tokens that can be guessed and entries of the policy file that have no effect.
absl::StatusOr<AccessFiles> OpenAccessFiles(const Config& config, Reloader* reloader);

// Returns the expiry of the server's certificate; empty without TLS.
std::vector<CertificateExpiry> CertificateExpiries(const AccessFiles& files);

// Returns the error of OpenAccessFiles; keeps nothing open.
absl::Status CheckAccessFiles(const Config& config);

// Number of calls that the gate refused, by reason; `certificate` includes TLS handshakes.
std::vector<LabelledCount> AuthRefusals(const Gate& gate);

// Number of calls by principal: see Gate::calls_by_label.
std::vector<LabelledCount> PrincipalCalls(const Gate& gate);

}  // namespace warpcall
