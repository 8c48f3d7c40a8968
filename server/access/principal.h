// The principal that makes a call; queue turns, memory shares and limits apply per principal.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {

struct Principal {
  uint64_t id = 0;  // identifies the principal while the process runs; never 0
  std::string
      name;  // from the certificate or the token file; empty: the connection is the principal
};

// A certificate and a token with one name belong to one principal.
Principal NamedPrincipal(absl::string_view name);
// `peer` is an address and a port, or a Unix socket's user: see PeerOf.
Principal ConnectionPrincipal(absl::string_view peer);

}  // namespace warpcall
