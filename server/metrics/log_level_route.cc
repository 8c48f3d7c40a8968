#include "server/metrics/log_level_route.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/common/suggest.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

constexpr uint32_t kLoopbackNetwork = 127;  // 127.0.0.0/8

bool IsLoopbackAddress(absl::string_view address) {
  const std::string text(address);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == kLoopbackNetwork;
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  // A socket for both families shows an IPv4 peer as ::ffff:a.b.c.d.
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kLoopbackNetwork);
}

// `host`: HOST, HOST:PORT, [IPV6] or [IPV6]:PORT.
bool IsLoopbackHost(absl::string_view host) {
  absl::string_view name = host.substr(0, host.rfind(':'));
  if (absl::EndsWith(host, "]")) name = host;
  const absl::string_view port = host.substr(std::min(name.size() + 1, host.size()));
  if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit)) return false;
  if (absl::ConsumePrefix(&name, "[") != absl::ConsumeSuffix(&name, "]")) return false;
  return absl::EqualsIgnoreCase(name, "localhost") || IsLoopbackAddress(name);
}

// The first name that is not one of loopback, or null.
const std::string* ForeignHost(const HttpRequest& request) {
  const auto found = std::find_if_not(request.hosts.begin(), request.hosts.end(), IsLoopbackHost);
  return found == request.hosts.end() ? nullptr : &*found;
}

HttpReply Forbid(const HttpRequest& request, absl::string_view peer) {
  if (!IsLoopbackAddress(peer))
    return {.status = 403,
            .body = absl::StrCat("/log_level is for clients on this machine, which ", peer,
                                 " is not\n")};
  return {.status = 403,
          .body = absl::StrCat("/log_level takes requests to localhost, 127.0.0.0/8 or [::1]; the "
                               "request names the host \"",
                               *ForeignHost(request), "\"\n")};
}

}  // namespace

bool MayUseLogLevel(const HttpRequest& request, absl::string_view peer) {
  return IsLoopbackAddress(peer) && ForeignHost(request) == nullptr;
}

HttpReply ShowLogLevel(const HttpRequest& request, absl::string_view peer) {
  if (!MayUseLogLevel(request, peer)) return Forbid(request, peer);
  return {.status = 200, .body = absl::StrCat(LogLevelName(CurrentLogLevel()), "\n")};
}

HttpReply ChangeLogLevel(const HttpRequest& request, absl::string_view peer) {
  if (!MayUseLogLevel(request, peer)) return Forbid(request, peer);
  const absl::string_view name = absl::StripAsciiWhitespace(request.body);
  LogLevel level;
  const std::vector<std::string> known = absl::StrSplit(LogLevelNames(), ", ");
  if (!ParseLogLevel(name, &level))
    return {.status = 400,
            .body = absl::StrCat("\"", name, "\" is unknown; known: ", LogLevelNames(),
                                 DidYouMean(name, known), "\n")};
  const LogLevel before = CurrentLogLevel();
  SetLogLevel(level);
  LogAlways(LogLevel::kInfo, "log level changed",
            {{"from", LogLevelName(before)}, {"to", LogLevelName(level)}, {"peer", peer}});
  return {.status = 200, .body = absl::StrCat(LogLevelName(level), "\n")};
}

}  // namespace warpcall
