// The files that TLS needs, checked before anybody relies on them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace warpcall {

// Paths of PEM files, as the flags name them.
struct TlsFiles {
  std::string cert;       // --tls_cert: the server's certificate, and those between it and a root
  std::string key;        // --tls_key: its private key, not encrypted
  std::string client_ca;  // --tls_client_ca: who signs clients' certificates; empty: none is asked
};

// What stands there.
struct TlsMaterial {
  std::string identity;   // the key and the certificates
  std::string client_ca;  // or empty
  absl::Time expiry;      // of the server's certificate
};

// INVALID_ARGUMENT names flag and file: it cannot be read, is no such PEM, the key is another
// certificate's, the certificate's time is over or has not begun at `now`.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files, absl::Time now = absl::Now());

}  // namespace warpcall
