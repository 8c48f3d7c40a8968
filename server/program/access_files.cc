#include "server/program/access_files.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/common/status_macros.h"
#include "server/access/tokens.h"
#include "server/log/log.h"
#include "server/transport/caller.h"

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
  if (!config.token_file.empty()) {
    Reloader::File seen = SeenNow("token_file", {config.token_file});
    ASSIGN_OR_RETURN(files.callers, Callers::Open(config.token_file));
    WarnOfWeak(*files.callers, config.token_file);
    reloader->Add(std::move(seen), [from = files.callers.get(), file = config.token_file] {
      auto read = from->ReadAgain();
      if (read.ok()) WarnOfWeak(*from, file);
      return read;
    });
  }
  if (!config.policy_file.empty()) {
    Reloader::File seen = SeenNow("policy_file", {config.policy_file});
    ASSIGN_OR_RETURN(files.policies, Policies::Open(config.policy_file, MethodNames()));
    reloader->Add(std::move(seen), [from = files.policies.get()] { return from->ReadAgain(); });
  }
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
    counts.push_back({AuthRefusalName(reason), gate.refusals(reason)});
  }
  return counts;
}

}  // namespace warpcall
