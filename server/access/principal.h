// Who a call is made by: what turns, shares of memory and limits go by.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {

struct Principal {
  uint64_t id = 0;  // the same for the same principal as long as the process runs; never 0
  std::string
      name;  // as a certificate or a file has it; empty: a connection of nobody in particular
};

// Certificates and tokens of one name are one principal's.
Principal NamedPrincipal(absl::string_view name);
// `peer` is an address and a port, or a Unix socket's user: see PeerOf.
Principal ConnectionPrincipal(absl::string_view peer);

}  // namespace warpcall
