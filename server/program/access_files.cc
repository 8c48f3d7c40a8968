#include "server/program/access_files.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/common/status_macros.h"
#include "server/access/policy_warnings.h"
#include "server/access/tokens.h"
#include "server/log/log.h"
#include "server/program/devices.h"
#include "server/transport/caller.h"
#include "server/transport/grpc_log.h"

namespace warpcall {
namespace {

// Returns the files of `flag` with their state before they are read.
Reloader::File SeenNow(const char* flag, std::vector<std::string> files) {
  std::string seen = FileWatch::StatesOf(files);
  return {.flag = flag, .file = files.front(), .watched = files, .seen = std::move(seen)};
}

void WarnOfWeak(const Callers& callers, const std::string& file) {
  if (callers.AnyWeak())
    LogAlways(LogLevel::kWarning, "tokens can be guessed",
              {{"file", file}, {"characters_at_least", static_cast<int64_t>(kTokenBytesGood)}});
}

// More would hide the rest of the log.
constexpr size_t kPolicyWarningsMax = 20;

// Logs a line for each entry without effect.
void WarnOfPolicies(const Config& config, const Callers* callers, const Policies& policies) {
  PolicySurroundings surroundings;
  if (callers != nullptr) surroundings.tokens = callers->names();
  surroundings.has_certificates = !config.tls_client_ca.empty();
  Registry registry;
  AddKernels(&registry);
  if (config.tests.fault_injection) AddFaultInjection(&registry);
  for (const Kernel& kernel : registry.kernels()) surroundings.kernels.push_back(kernel.op->name);
  const std::vector<std::string> warnings = PolicyWarnings(*policies.table(), surroundings);
  for (size_t i = 0; i < std::min(warnings.size(), kPolicyWarningsMax); ++i)
    LogAlways(LogLevel::kWarning, warnings[i], {{"file", config.policy_file}});
  if (warnings.size() > kPolicyWarningsMax)
    LogAlways(LogLevel::kWarning,
              absl::StrCat(warnings.size() - kPolicyWarningsMax, " more entries have no effect"),
              {{"file", config.policy_file}});
}

// Renewals come earlier: cert-manager's a third of the certificate's time before.
constexpr absl::Duration kEndsSoon = absl::Hours(7 * 24);

void LogCertificate(const Certificates& certificates, const std::string& file) {
  const absl::Duration left = certificates.expiry() - absl::Now();
  Log(left < kEndsSoon ? LogLevel::kWarning : LogLevel::kInfo, "the TLS certificate ends",
      {{"file", file},
       {"expiry", absl::FormatTime(certificates.expiry(), absl::UTCTimeZone())},
       {"days_left", absl::ToDoubleHours(left) / 24}});
}

TlsFiles TlsFilesOf(const Config& config) {
  return {config.tls_cert, config.tls_key, config.tls_client_ca};
}

}  // namespace

absl::StatusOr<AccessFiles> OpenAccessFiles(const Config& config, Reloader* reloader) {
  AccessFiles files;
  if (!config.tls_cert.empty()) {
    Reloader::File seen =
        SeenNow("tls_cert", {config.tls_cert, config.tls_key, config.tls_client_ca});
    ASSIGN_OR_RETURN(files.certificates, Certificates::Open(TlsFilesOf(config)));
    files.certificate_file = config.tls_cert;
    LogCertificate(*files.certificates, config.tls_cert);
    reloader->Add(std::move(seen), [from = files.certificates.get()] { return from->ReadAgain(); });
  }
  Reloader::File tokens_seen = SeenNow("token_file", {config.token_file});
  if (!config.token_file.empty()) {
    ASSIGN_OR_RETURN(files.callers, Callers::Open(config.token_file));
  }
  Reloader::File policies_seen = SeenNow("policy_file", {config.policy_file});
  if (!config.policy_file.empty()) {
    ASSIGN_OR_RETURN(files.policies, Policies::Open(config.policy_file, MethodNames()));
  }
  const auto warn = [&config, callers = files.callers.get(), policies = files.policies.get()] {
    if (policies != nullptr) WarnOfPolicies(config, callers, *policies);
  };
  warn();
  if (files.callers != nullptr) {
    WarnOfWeak(*files.callers, config.token_file);
    reloader->Add(std::move(tokens_seen), [&config, warn, from = files.callers.get()] {
      auto read = from->ReadAgain();
      if (!read.ok()) return read;
      WarnOfWeak(*from, config.token_file);
      warn();
      return read;
    });
  }
  if (files.policies != nullptr)
    reloader->Add(std::move(policies_seen), [warn, from = files.policies.get()] {
      auto read = from->ReadAgain();
      if (read.ok()) warn();
      return read;
    });
  files.gate = std::make_unique<Gate>(
      Gate::Options{files.callers.get(), !config.tls_client_ca.empty(), files.policies.get()});
  return files;
}

std::vector<CertificateExpiry> CertificateExpiries(const AccessFiles& files) {
  if (files.certificates == nullptr) return {};
  return {{files.certificate_file,
           absl::ToDoubleSeconds(files.certificates->expiry() - absl::UnixEpoch())}};
}

std::vector<LabelledCount> PrincipalCalls(const Gate& gate) {
  std::vector<LabelledCount> counts;
  for (const auto& [label, count] : gate.calls_by_label()) counts.push_back({label, count});
  return counts;
}

absl::Status CheckAccessFiles(const Config& config) {
  if (!config.tls_cert.empty()) RETURN_IF_ERROR(ReadTlsFiles(TlsFilesOf(config)).status());
  if (!config.token_file.empty()) RETURN_IF_ERROR(Callers::Open(config.token_file).status());
  if (!config.policy_file.empty())
    RETURN_IF_ERROR(Policies::Open(config.policy_file, MethodNames()).status());
  return absl::OkStatus();
}

std::vector<LabelledCount> AuthRefusals(const Gate& gate) {
  std::vector<LabelledCount> counts;
  for (int i = 0; i < kAuthRefusalCount; ++i) {
    const auto reason = static_cast<AuthRefusal>(i);
    // A server that asks for no certificate refuses none: then the lines are the span exporter's.
    const bool has_handshakes = reason == AuthRefusal::kCertificate && gate.asks_for_certificates();
    const int64_t handshakes = has_handshakes ? ClientCertificatesRefused() : 0;
    counts.push_back({AuthRefusalName(reason), gate.refusals(reason) + handshakes});
  }
  return counts;
}

}  // namespace warpcall
