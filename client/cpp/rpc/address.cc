#include "client/cpp/rpc/address.h"

#include <sys/un.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

using absl::string_view;

constexpr int kPortMax = 65535;
constexpr size_t kSocketPathMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr string_view kUnix = "unix:";
// gRPC's own (its doc/naming.md); what follows them is for it to judge.
constexpr string_view kSchemes[] = {"dns:", "ipv4:", "ipv6:", "unix-abstract:", "vsock:", "xds:"};

// gRPC's messages of connections that never came about.
constexpr string_view kUnresolved[] = {"DNS resolution failed", "errors resolving "};
constexpr string_view kUnconnected = "last error: ";
// gRPC's own of a deadline, whatever it waited for: perhaps for a proxy that never answered.
constexpr string_view kDeadline = "Deadline Exceeded";
constexpr string_view kClosed = "Socket closed";
// gRPC's own where its TLS library takes none of the files.
constexpr string_view kNoAddress = "empty address list";

absl::Status Invalid(string_view address, string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("the address '", address, "' ", problem));
}

absl::Status CheckPort(string_view address, string_view port) {
  int number;
  const bool digits = !port.empty() && std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(port, &number) && number >= 1 && number <= kPortMax)
    return absl::OkStatus();
  return Invalid(
      address, absl::StrCat("has the port '", port, "'; a port is a number from 1 to ", kPortMax));
}

absl::StatusOr<std::string> ParseUnix(string_view address) {
  const string_view path = address.substr(kUnix.size());
  if (path.empty()) return Invalid(address, "has no path of a socket, as unix:/run/warpcall.sock");
  if (path.size() > kSocketPathMax)
    return Invalid(address, absl::StrCat("has a path of ", path.size(),
                                         " bytes; that of a socket has at most ", kSocketPathMax));
  return std::string(address);
}

// Returns the path in a Unix socket's address; empty for other addresses.
string_view SocketPath(string_view address) {
  if (!absl::ConsumePrefix(&address, kUnix)) return "";
  absl::ConsumePrefix(&address, "//");
  return address;
}

// Returns the cause, which gRPC's messages give last, after a colon.
string_view LastPart(string_view message) {
  absl::ConsumeSuffix(&message,
                      "]");  // gRPC versions after 1.51 end with a list of resolver errors
  const size_t colon = message.rfind(": ");
  return colon == string_view::npos ? message : message.substr(colon + 2);
}

std::string NoServer(string_view address, string_view cause) {
  const string_view path = SocketPath(address);
  if (!path.empty() && cause == "No such file or directory")
    return absl::StrCat("there is no socket ", path,
                        ": is warpcalld running, with --listen=", address, "?");
  const std::string where = path.empty() ? std::string(address) : absl::StrCat("the socket ", path);
  if (cause == "Connection refused")
    return absl::StrCat("no server listens on ", where,
                        " (connection refused): is warpcalld running there?");
  // As a server with TLS ends a connection without it, or without the certificate that it wants.
  const string_view hint =
      cause == kClosed ? "; does it have TLS, or want a client's certificate, or another?" : "";
  return absl::StrCat("can't connect to ", where, ": ", cause, hint);
}

bool IsUnresolved(string_view message) {
  return std::any_of(std::begin(kUnresolved), std::end(kUnresolved),
                     [&](string_view start) { return absl::StartsWith(message, start); });
}

bool IsOfConnecting(const absl::Status& status) {
  const string_view message = status.message();
  if (absl::IsDeadlineExceeded(status)) return message == kDeadline;
  return absl::IsUnavailable(status) &&
         (IsUnresolved(message) || absl::StrContains(message, kUnconnected));
}

}  // namespace

absl::StatusOr<std::string> ParseAddress(string_view address) {
  if (address.empty())
    return absl::InvalidArgumentError("the address is empty; it is host, host:port or unix:/path");
  if (absl::StartsWith(address, kUnix)) return ParseUnix(address);
  for (const string_view scheme : kSchemes)
    if (absl::StartsWith(address, scheme)) return std::string(address);
  if (absl::StrContains(address, "/"))
    return Invalid(address, "is none; it is host, host:port or unix:/path");
  size_t host_end = address.find(':');
  if (address[0] == '[') {
    const size_t bracket = address.find(']');
    if (bracket == string_view::npos) return Invalid(address, "has a '[' without ']'");
    host_end = bracket + 1;
  } else if (host_end != address.rfind(':')) {  // IPv6, which leaves no room for a port
    return absl::StrCat("[", address, "]:", kDefaultPort);
  }
  if (host_end >= address.size()) return absl::StrCat(address, ":", kDefaultPort);
  if (host_end == 0) return Invalid(address, "has no host before its port");
  if (address[host_end] != ':') return Invalid(address, "has more than a port behind its ']'");
  RETURN_IF_ERROR(CheckPort(address, address.substr(host_end + 1)));
  return std::string(address);
}

bool MayBeSeveral(string_view address) {
  for (const string_view scheme : {"dns:", "ipv4:", "ipv6:"})
    if (absl::StartsWith(address, scheme)) return true;
  return false;
}

bool IsOneServer(string_view address) {
  if (absl::StartsWith(address, "dns:") || absl::StartsWith(address, "xds:")) return false;
  return !MayBeSeveral(address) || !absl::StrContains(address, ",");
}

absl::Status ExplainConnection(const absl::Status& status, string_view address,
                               const std::optional<HttpProxy>& proxy) {
  const string_view message = status.message();
  if (proxy.has_value() && IsOfConnecting(status))
    return absl::Status(status.code(), absl::StrCat("can't connect to ", address, " through the ",
                                                    "proxy ", proxy->address, " (", proxy->variable,
                                                    "): ", LastPart(message)));
  if (absl::IsDeadlineExceeded(status) && message == kDeadline)
    return absl::DeadlineExceededError(
        absl::StrCat("no answer of ", address,
                     " before the deadline; the server's log says where the time went"));
  if (!absl::IsUnavailable(status)) return status;
  if (absl::StartsWith(message, kNoAddress))
    return absl::UnavailableError(
        absl::StrCat("can't connect to ", address,
                     " with these TLS files: does each have what its option says, in PEM, and is "
                     "the key that of the client's certificate?"));
  if (IsUnresolved(message))
    return absl::UnavailableError(absl::StrCat("the host '", address.substr(0, address.rfind(':')),
                                               "' is unknown: ", LastPart(message)));
  if (!absl::StrContains(message, kUnconnected)) return status;
  return absl::UnavailableError(NoServer(address, LastPart(message)));
}

}  // namespace warpcall::client
