// Chooses the HTTP proxy, if any, of a gRPC channel: one rule for both clients
// (client/python/warpcall/_address.py has it too) and for the server's span exporter.
//
// The environment's grpc_proxy, https_proxy or http_proxy, the first that is set, names a proxy;
// no_grpc_proxy or else no_proxy lists the hosts that are reached without one. An entry matches
// every host that ends with it, in upper or lower case; "10.0.0.0/8" matches the addresses of that
// network; "*" matches all. A server on this machine is never reached through a proxy: loopback
// addresses (127.0.0.0/8, ::1), localhost, Unix sockets, vsock. Nor is a list of addresses, which
// no proxy accepts.
//
// gRPC's own rule is narrower and varies (1.51 knows no networks and uses proxies for loopback): if
// this rule finds no proxy, GRPC_ARG_ENABLE_HTTP_PROXY must be 0.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace warpcall {

struct HttpProxy {
  std::string address;   // "proxy.example:3128", without any user and password
  std::string variable;  // the environment variable with its name: "https_proxy"
};

// Like getenv: returns null if there is no such variable.
using Environment = absl::FunctionRef<const char*(const char* name)>;

// Finds the proxy of a channel to `address`, in gRPC's notation: "host:port", "unix:/path",
// "ipv4:1.2.3.4:80". The default environment is this process's.
std::optional<HttpProxy> HttpProxyFor(absl::string_view address, Environment environment);
std::optional<HttpProxy> HttpProxyFor(absl::string_view address);

}  // namespace warpcall
