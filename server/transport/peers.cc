#include "server/transport/peers.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

// The address of one end of a TCP connection. An IPv4 address mapped to IPv6 is an IPv4 address.
struct Address {
  int family = AF_UNSPEC;
  uint32_t words[4] = {};  // as on the network; IPv4 has one
  uint16_t port = 0;       // as on the network

  bool is_loopback() const {
    if (family == AF_INET) return ntohl(words[0]) >> 24 == IN_LOOPBACKNET;
    return std::memcmp(words, &in6addr_loopback, sizeof(words)) == 0;
  }
  std::string text() const {
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(family, words, text, sizeof(text));
    return text;
  }
};

Address ToAddress(const sockaddr_storage& from) {
  Address address;
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    address.family = AF_INET;
    address.words[0] = v4.sin_addr.s_addr;
    address.port = v4.sin_port;
  } else if (from.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    const uint32_t(&words)[4] = v6.sin6_addr.s6_addr32;
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      address.family = AF_INET;
      address.words[0] = words[3];
    } else {
      address.family = AF_INET6;
      for (int i = 0; i < 4; ++i) address.words[i] = words[i];
    }
    address.port = v6.sin6_port;
  }
  return address;
}

std::optional<sockaddr_storage> PeerAddress(int socket) {
  sockaddr_storage peer = {};
  socklen_t bytes = sizeof(peer);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return std::nullopt;
  return peer;
}

// Asks the kernel for the one TCP socket from `local` to `remote` (sock_diag(7)). A socket that its
// process has closed belongs to uid 0, so only an open one counts.
std::optional<uid_t> UserOfTcpSocket(const Address& local, const Address& remote) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 wanted;
  } request = {};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.wanted.sdiag_family = static_cast<uint8_t>(local.family);
  request.wanted.sdiag_protocol = IPPROTO_TCP;
  request.wanted.idiag_states = ~0u;
  request.wanted.id.idiag_sport = local.port;
  request.wanted.id.idiag_dport = remote.port;
  for (int i = 0; i < 4; ++i) {
    request.wanted.id.idiag_src[i] = local.words[i];
    request.wanted.id.idiag_dst[i] = remote.words[i];
  }
  request.wanted.id.idiag_cookie[0] = request.wanted.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

  const int kernel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (kernel < 0) return std::nullopt;
  struct {
    nlmsghdr header;
    inet_diag_msg found;
    char attributes[1024];
  } answer = {};
  ssize_t bytes = send(kernel, &request, sizeof(request), 0);
  // The kernel answers before send returns.
  if (bytes > 0) bytes = recv(kernel, &answer, sizeof(answer), MSG_DONTWAIT);
  close(kernel);

  const bool is_told = bytes >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(answer.found))) &&
                       answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY;
  if (!is_told || answer.found.idiag_state != TCP_ESTABLISHED || answer.found.idiag_inode == 0)
    return std::nullopt;
  return answer.found.idiag_uid;
}

std::string UserSource(uid_t user) { return absl::StrCat("uid ", user); }

std::string LoopbackSource(int socket, const Address& client) {
  sockaddr_storage own = {};
  socklen_t bytes = sizeof(own);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) return "";
  const std::optional<uid_t> user = UserOfTcpSocket(client, ToAddress(own));
  return user.has_value() ? UserSource(*user) : "loopback";
}

std::string UnixSource(int socket) {
  ucred user = {};
  socklen_t bytes = sizeof(user);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0) return "";
  return UserSource(user.uid);
}

}  // namespace

std::string SourceOf(int socket) {
  const std::optional<sockaddr_storage> peer = PeerAddress(socket);
  if (!peer.has_value()) return "";
  if (peer->ss_family == AF_UNIX) return UnixSource(socket);
  Address client = ToAddress(*peer);
  if (client.is_loopback()) return LoopbackSource(socket, client);
  if (client.family == AF_INET) return client.text();
  client.words[2] = client.words[3] = 0;
  return absl::StrCat(client.text(), "/64");
}

std::string PeerNameOf(int socket) {
  const std::optional<sockaddr_storage> peer = PeerAddress(socket);
  if (!peer.has_value()) return "";
  if (peer->ss_family == AF_UNIX) return absl::StrCat("fd:", socket);
  const Address client = ToAddress(*peer);
  const uint16_t port = ntohs(client.port);
  if (client.family == AF_INET) return absl::StrCat("ipv4:", client.text(), ":", port);
  return absl::StrCat("ipv6:%5B", client.text(), "%5D:", port);
}

bool IsUnixSocket(int socket) {
  int domain = AF_UNSPEC;
  socklen_t bytes = sizeof(domain);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

}  // namespace warpcall
