// Which HTTP proxy, if any, a channel of gRPC goes through: one rule for both clients
// (client/python/warpcall/_address.py has the same) and for the server's span exporter.
//
// The environment's grpc_proxy, https_proxy or http_proxy, the first that is set, names a proxy;
// no_grpc_proxy or else no_proxy lists the hosts that are reached without one. An entry matches
// every host that ends with it, in upper or lower case; "10.0.0.0/8" matches the addresses of that
// network; "*" matches all. A server on this machine is never reached through a proxy: loopback
// addresses (127.0.0.0/8, ::1), localhost, Unix sockets, vsock; nor is a list of addresses, which
// no proxy can be asked for.
//
// gRPC's own rule is narrower and varies (1.51 knows no networks and takes proxies for loopback):
// where this rule finds none, GRPC_ARG_ENABLE_HTTP_PROXY must be 0.
#pragma once

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace warpcall {

struct HttpProxy {
  std::string address;   // "proxy.example:3128", without the user and password that it may have
  std::string variable;  // the environment's that names it: "https_proxy"
};

// As getenv: null where there is no such variable.
using Environment = absl::FunctionRef<const char*(const char* name)>;

// For a channel to `address`, as gRPC takes it: "host:port", "unix:/path", "ipv4:1.2.3.4:80". By
// default in this process's environment.
std::optional<HttpProxy> HttpProxyFor(absl::string_view address, Environment environment);
std::optional<HttpProxy> HttpProxyFor(absl::string_view address);

}  // namespace warpcall
