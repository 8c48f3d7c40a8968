#include "proto/common/http_proxy.h"

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall {
namespace {

using absl::string_view;

constexpr string_view kLocalSchemes[] = {"unix:", "unix-abstract:", "vsock:"};

// An IPv4 address is mapped to IPv6, ::ffff:1.2.3.4.
using IpAddress = std::array<uint8_t, 16>;
constexpr int kIpv4Bits = 32;
constexpr int kIpv6Bits = 128;
constexpr uint8_t kIpv4Prefix[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

std::optional<IpAddress> ParseIp(string_view host) {
  const std::string text(host.substr(0, host.find('%')));  // without an interface
  IpAddress ip;
  if (inet_pton(AF_INET6, text.c_str(), ip.data()) == 1) return ip;
  in_addr ipv4;
  if (inet_aton(text.c_str(), &ipv4) == 0) return std::nullopt;  // also "127.1", as in getaddrinfo
  std::memcpy(ip.data(), kIpv4Prefix, sizeof kIpv4Prefix);
  std::memcpy(ip.data() + sizeof kIpv4Prefix, &ipv4, sizeof ipv4);
  return ip;
}

bool IsIpv4(const IpAddress& ip) {
  return std::memcmp(ip.data(), kIpv4Prefix, sizeof kIpv4Prefix) == 0;
}

bool SharesBits(const IpAddress& a, const IpAddress& b, int bits) {
  const auto whole = static_cast<size_t>(bits / 8);
  if (std::memcmp(a.data(), b.data(), whole) != 0) return false;
  const int rest = bits % 8;
  return rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0;
}

// Includes the unspecified addresses, 0.0.0.0 and ::, which connect to this machine too.
bool IsLoopback(string_view host) {
  const std::string name = absl::AsciiStrToLower(absl::StripSuffix(host, "."));
  if (name == "localhost" || absl::EndsWith(name, ".localhost")) return true;
  const std::optional<IpAddress> ip = ParseIp(host);
  if (!ip.has_value()) return false;
  const IpAddress unspecified = {};
  IpAddress ipv6_loopback = {};
  ipv6_loopback.back() = 1;
  if (*ip == unspecified || *ip == ipv6_loopback) return true;
  const uint8_t* const ipv4 = ip->data() + sizeof kIpv4Prefix;
  return IsIpv4(*ip) && (ipv4[0] == 127 || std::memcmp(ipv4, unspecified.data(), 4) == 0);
}

// `network` is "10.0.0.0/8", for example.
bool IsInNetwork(string_view host, string_view network) {
  const std::pair<string_view, string_view> parts =
      absl::StrSplit(network, absl::MaxSplits('/', 1));
  int bits;
  if (!absl::SimpleAtoi(parts.second, &bits)) return false;
  const std::optional<IpAddress> ip = ParseIp(host);
  const std::optional<IpAddress> of = ParseIp(parts.first);
  if (!ip.has_value() || !of.has_value() || IsIpv4(*ip) != IsIpv4(*of)) return false;
  const int bits_max = absl::StrContains(parts.first, ':') ? kIpv6Bits : kIpv4Bits;
  if (bits < 0 || bits > bits_max) return false;
  return SharesBits(*ip, *of, kIpv6Bits - bits_max + bits);
}

bool IsExcepted(string_view host, string_view list) {
  for (string_view entry : absl::StrSplit(list, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry.empty()) continue;
    if (entry == "*" || absl::EndsWithIgnoreCase(host, entry) || IsInNetwork(host, entry))
      return true;
  }
  return false;
}

// Returns the host without port and brackets.
string_view HostOf(string_view address) {
  if (absl::ConsumePrefix(&address, "[")) return address.substr(0, address.find(']'));
  const size_t colon = address.find(':');
  return colon == address.rfind(':') ? address.substr(0, colon) : address;
}

// The host that a client would name to a proxy; empty if no proxy can reach `address`.
string_view ProxiedHost(string_view address) {
  for (const string_view scheme : kLocalSchemes)
    if (absl::StartsWith(address, scheme)) return "";
  if (absl::StartsWith(address, "dns:")) {  // dns:host, dns:///host, dns://authority/host
    absl::ConsumePrefix(&address, "dns:");
    address.remove_prefix(address.rfind('/') + 1);  // none: npos + 1 is 0
  } else if (absl::ConsumePrefix(&address, "ipv4:") || absl::ConsumePrefix(&address, "ipv6:")) {
    if (absl::StrContains(address, ",")) return "";
  }
  const string_view host = HostOf(address);
  return IsLoopback(host) ? "" : host;
}

std::optional<HttpProxy> NamedProxy(Environment environment) {
  for (const char* const variable : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    const char* const value = environment(variable);
    if (value == nullptr) continue;
    string_view rest = value;
    if (!absl::ConsumePrefix(&rest, "http://")) return std::nullopt;  // gRPC accepts no other
    rest = rest.substr(0, rest.find('/'));
    rest.remove_prefix(rest.rfind('@') + 1);
    if (rest.empty()) return std::nullopt;
    return HttpProxy{std::string(rest), variable};
  }
  return std::nullopt;
}

}  // namespace

std::optional<HttpProxy> HttpProxyFor(string_view address, Environment environment) {
  std::optional<HttpProxy> proxy = NamedProxy(environment);
  const string_view host = ProxiedHost(address);
  if (!proxy.has_value() || host.empty()) return std::nullopt;
  const char* excepted = environment("no_grpc_proxy");
  if (excepted == nullptr) excepted = environment("no_proxy");
  if (excepted != nullptr && IsExcepted(host, excepted)) return std::nullopt;
  return proxy;
}

std::optional<HttpProxy> HttpProxyFor(string_view address) {
  return HttpProxyFor(address, [](const char* name) -> const char* { return getenv(name); });
}

}  // namespace warpcall
