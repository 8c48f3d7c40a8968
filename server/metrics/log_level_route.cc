#include "server/metrics/log_level_route.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/log.h"

namespace warpcall {
namespace {

constexpr uint32_t kLoopbackNetwork = 127;  // 127.0.0.0/8

HttpReply Forbid(absl::string_view peer) {
  return {
      .status = 403,
      .body = absl::StrCat("/log_level is for clients on this machine, which ", peer, " is not\n")};
}

}  // namespace

bool MayUseLogLevel(absl::string_view peer) {
  const std::string text(peer);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == kLoopbackNetwork;
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  // A socket for both families shows an IPv4 peer as ::ffff:a.b.c.d.
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == kLoopbackNetwork);
}

HttpReply ShowLogLevel(absl::string_view peer) {
  if (!MayUseLogLevel(peer)) return Forbid(peer);
  return {.status = 200, .body = absl::StrCat(LogLevelName(CurrentLogLevel()), "\n")};
}

HttpReply ChangeLogLevel(absl::string_view peer, absl::string_view body) {
  if (!MayUseLogLevel(peer)) return Forbid(peer);
  const absl::string_view name = absl::StripAsciiWhitespace(body);
  LogLevel level;
  if (!ParseLogLevel(name, &level))
    return {.status = 400,
            .body = absl::StrCat("\"", name, "\" is unknown; known: ", LogLevelNames(), "\n")};
  const LogLevel before = CurrentLogLevel();
  SetLogLevel(level);
  LogAlways(LogLevel::kInfo, "log level changed",
            {{"from", LogLevelName(before)}, {"to", LogLevelName(level)}, {"peer", peer}});
  return {.status = 200, .body = absl::StrCat(LogLevelName(level), "\n")};
}

}  // namespace warpcall
