// Credentials of a client, and the authorities by which it checks the server.
#pragma once

#include <string>

namespace warpcall::client {

struct Credentials {
  // Encrypts connections, for a server that listens with TLS.
  bool tls = false;
  // PEM texts, for TLS. The authorities of servers to trust; empty: those that gRPC trusts, which
  // are the system's.
  std::string ca = {};
  // The client's own certificate with those between it and an authority, and its private key, for a
  // server that asks for them; both or none.
  std::string cert = {};
  std::string key = {};
  // Comes with every call, in the clear where there is no TLS. Empty: none.
  std::string token = {};
};

}  // namespace warpcall::client
