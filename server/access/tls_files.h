// The files that TLS needs, checked before the server uses them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace warpcall {

// Paths of PEM files, as the flags name them.
struct TlsFiles {
  std::string cert;       // --tls_cert: the server's certificate, and those between it and a root
  std::string key;        // --tls_key: its private key, not encrypted
  std::string client_ca;  // --tls_client_ca: issuers of client certificates; empty: not requested
};

// The contents of TlsFiles.
struct TlsMaterial {
  std::string identity;   // private key and certificates
  std::string client_ca;  // empty: not requested
  absl::Time expiry;      // end of validity of the server's certificate
};

// INVALID_ARGUMENT names flag and file: the file is unreadable or not such PEM, the key does not
// fit the certificate, or the certificate is not valid at `now`.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files, absl::Time now = absl::Now());

}  // namespace warpcall
