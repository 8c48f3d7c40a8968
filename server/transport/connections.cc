#include "server/transport/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

// Idle connections hold up to 64 KiB each, 512 MiB in all.
constexpr int64_t kConnectionsMax = 8192;
// For the metrics port (128), inspections, self-tests, compilers, files that are read again.
constexpr int64_t kDescriptorsKept = 256;

uint64_t SocketInode(int descriptor) {
  struct stat found;
  if (fstat(descriptor, &found) != 0 || !S_ISSOCK(found.st_mode)) return 0;
  return found.st_ino;
}

std::string Ipv4Text(const void* address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, address, text, sizeof(text));
  return text;
}

std::string Ipv6Source(in6_addr address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return Ipv4Text(&address.s6_addr[12]);
  std::memset(&address.s6_addr[8], 0, 8);
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

std::string UserOf(int socket) {
  ucred user = {};
  socklen_t bytes = sizeof(user);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0) return "";
  return absl::StrCat("uid ", user.uid);
}

}  // namespace

ConnectionLimits ConnectionLimitsFor(int64_t descriptors_max, int64_t descriptors_open) {
  const int64_t left = std::max<int64_t>(descriptors_max - descriptors_open, 0);
  // Where there are few, half of them.
  const int64_t kept = std::min(kDescriptorsKept, left / 2);
  const int64_t all = std::clamp<int64_t>(left - kept, 1, kConnectionsMax);
  // A quarter is for others.
  return {static_cast<int>(all), static_cast<int>(std::max<int64_t>(all - all / 4, 1))};
}

std::string SourceOf(int socket) {
  sockaddr_storage peer = {};
  socklen_t bytes = sizeof(peer);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return "";
  switch (peer.ss_family) {
    case AF_INET:
      return Ipv4Text(&reinterpret_cast<const sockaddr_in&>(peer).sin_addr);
    case AF_INET6:
      return Ipv6Source(reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr);
    default:
      return UserOf(socket);
  }
}

Connections::Connections(ConnectionLimits limits, Clock clock,
                         absl::AnyInvocable<uint64_t(int) const> inode_of)
    : limits_(limits), clock_(std::move(clock)), inode_of_(std::move(inode_of)) {}

Connections::Connections(ConnectionLimits limits, Clock clock)
    : Connections(limits, std::move(clock), SocketInode) {}

Connections::Verdict Connections::Admit(int socket, const std::string& source) {
  // The descriptor is new, so whatever had its number has ended.
  if (const auto former = open_.find(socket); former != open_.end()) Remove(former);
  if (From(source) >= limits_.from_one_source) Sweep();
  if (From(source) >= limits_.from_one_source) return Verdict::kTooManyFromSource;
  if (full()) return Verdict::kTooMany;
  open_.emplace(socket, Open{inode_of_(socket), source});
  ++from_[source];
  return Verdict::kAdmitted;
}

void Connections::ShutDown() {
  for (const auto& [descriptor, connection] : open_)
    if (inode_of_(descriptor) == connection.inode) shutdown(descriptor, SHUT_RDWR);
}

bool Connections::full() {
  if (open() >= limits_.all) Sweep();
  return open() >= limits_.all;
}

int Connections::From(const std::string& source) const {
  const auto found = from_.find(source);
  return found == from_.end() ? 0 : found->second;
}

void Connections::Remove(absl::flat_hash_map<int, Open>::iterator ended) {
  const auto source = from_.find(ended->second.source);
  if (--source->second == 0) from_.erase(source);
  open_.erase(ended);
}

void Connections::Sweep() {
  const int64_t now_ns = clock_();
  if (now_ns < next_sweep_ns_) return;
  next_sweep_ns_ = now_ns + kSweepNs;
  for (auto at = open_.begin(); at != open_.end();) {
    const auto next = std::next(at);
    if (inode_of_(at->first) != at->second.inode) Remove(at);
    at = next;
  }
}

}  // namespace warpcall
