#include "server/flags/exposure.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/system/listen.h"

namespace warpcall {
namespace {

using Version = std::array<int, 3>;

// The first without known defects that a peer could use: denial of service by CVE-2023-32731,
// CVE-2023-33953, CVE-2023-44487, CVE-2024-7246 and others.
constexpr Version kGrpcFloor = {1, 65, 4};

// "1.51.1" or "1.66.0-dev"; what is no number counts as 0.
Version ToVersion(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::ByAnyChar(".-"));
  Version version = {};
  for (size_t i = 0; i < std::min(parts.size(), version.size()); ++i)
    if (!absl::SimpleAtoi(parts[i], &version[i])) version[i] = 0;
  return version;
}

// The first that other machines can reach, or "".
std::string Exposed(const Config& config) {
  const auto found = std::find_if(config.listen.begin(), config.listen.end(),
                                  [](const std::string& address) { return !IsLocal(address); });
  return found == config.listen.end() ? "" : *found;
}

}  // namespace

absl::Status CheckExposure(const Config& config) {
  if (config.insecure || !config.tls_cert.empty() || !config.token_file.empty())
    return absl::OkStatus();
  const std::string address = Exposed(config);
  if (address.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--listen=", address, " lets other machines call this server, whoever they are: give ",
      "--tls_cert and --tls_key, or --token_file; or stay on this machine, by ",
      "--listen=127.0.0.1:8470 or unix:/path; or say --insecure, behind a proxy that keeps others ",
      "out or in a network that you trust"));
}

std::string GrpcWarning(const Config& config, absl::string_view grpc_version) {
  const std::string address = Exposed(config);
  if (address.empty() || ToVersion(grpc_version) >= kGrpcFloor) return "";
  return absl::StrCat(
      "other machines can reach ", address, ", and gRPC ", grpc_version,
      " has published defects, mended in ", absl::StrJoin(kGrpcFloor, "."),
      ": anybody who connects can use up its memory; put HAProxy between it and whoever "
      "is not trusted (haproxy.cfg in deploy/haproxy or /usr/share/warpcall/haproxy; SECURITY.md)");
}

}  // namespace warpcall
