#include "server/system/listen.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr size_t kPortDigitsMax = 5;
constexpr size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
// A lock's file may be removed by who gives it back, between being opened and being locked.
constexpr int kLockAttempts = 100;
constexpr int kAnyPortAttempts = 10;
constexpr char kAll[] = "::";
constexpr char kAllOfIpv4[] = "0.0.0.0";
// The state TCP_LISTEN in /proc/net/tcp.
constexpr char kListening[] = "0A";

absl::Status CannotListen(absl::string_view address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", why));
}

// "process 4711 (nginx)". A process that finds itself was told to listen there twice.
std::string ProcessName(int64_t pid) {
  if (pid == getpid()) return "this process: two addresses that it is to listen on are the same";
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name.empty() ? absl::StrCat("process ", pid)
                      : absl::StrCat("process ", pid, " (", name, ")");
}

// "socket:[INODE]" of each socket that listens at the port, as /proc names them.
std::set<std::string> ListenersAt(int port) {
  std::set<std::string> sockets;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      // sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
          timeout >> inode;
      const std::string wanted = absl::StrCat(":", absl::Hex(port, absl::kZeroPad4));
      if (state == kListening && absl::EndsWithIgnoreCase(local, wanted))
        sockets.insert(absl::StrCat("socket:[", inode, "]"));
    }
  }
  return sockets;
}

bool HasOneOf(const std::set<std::string>& sockets, const std::string& process) {
  const std::string folder = absl::StrCat("/proc/", process, "/fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (open == nullptr) return false;
  while (const dirent* const entry = readdir(open.get())) {
    char target[64];
    const ssize_t bytes =
        readlink(absl::StrCat(folder, "/", entry->d_name).c_str(), target, sizeof(target));
    if (bytes > 0 && sockets.count(std::string(target, static_cast<size_t>(bytes))) > 0)
      return true;
  }
  return false;
}

// " by process 4711 (nginx)"; "" where that cannot be seen, as other users' processes cannot.
std::string ByWhom(int port) {
  const std::set<std::string> sockets = ListenersAt(port);
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(opendir("/proc"), closedir);
  if (sockets.empty() || processes == nullptr) return "";
  while (const dirent* const entry = readdir(processes.get())) {
    int64_t pid;
    if (absl::SimpleAtoi(entry->d_name, &pid) && HasOneOf(sockets, entry->d_name))
      return absl::StrCat(" by ", ProcessName(pid));
  }
  return "";
}

std::string WhyNotBound(int error, int port) {
  switch (error) {
    case EADDRINUSE:
      return absl::StrCat("port ", port, " is in use", ByWhom(port));
    case EADDRNOTAVAIL:
      return "this machine has no such address";
    case EACCES:
      return absl::StrCat("port ", port, " takes a permission that this process does not have");
    case EAFNOSUPPORT:
      return "this machine has no addresses of this kind";
    default:
      return strerror(error);
  }
}

bool HasIpv6() {
  const Descriptor attempt(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return attempt.get() >= 0 || errno != EAFNOSUPPORT;
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(ipv4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ipv6) ||
         (IN6_IS_ADDR_V4MAPPED(&ipv6) && ipv6.s6_addr[12] == IN_LOOPBACKNET);
}

// As many as the system allows: it takes less for a larger number.
constexpr int kBacklog = std::numeric_limits<int>::max();

// 0, or the error.
int Listen(const addrinfo& address, const Descriptor& socket) {
  if (socket.get() < 0) return errno;
  const int on = 1, off = 0;
  // Ignores recent connections of a server that has ended. SO_REUSEPORT is not set: two servers on
  // one port would share connections at random.
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // All addresses of IPv6 include those of IPv4.
  if (address.ai_family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  return listen(socket.get(), kBacklog) == 0 ? 0 : errno;
}

// Returns the port of a bound socket; -1 if the socket has none.
int PortOf(const Descriptor& socket) {
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof(bound);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return -1;
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(bound).sin_port
                                          : reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
}

void SetPort(int port, sockaddr* address) {
  (address->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(address)->sin_port
                                 : reinterpret_cast<sockaddr_in6*>(address)->sin6_port) =
      htons(static_cast<uint16_t>(port));
}

// The result of listening at all addresses of a host.
struct Listened {
  std::vector<Descriptor> sockets;
  int port = 0;
  int error = 0;  // the worst; an address may be missing, but none may be in use

  bool ok() const { return error == 0 || (!sockets.empty() && error != EADDRINUSE); }
};

// Files of hosts name an address twice.
bool IsNamedBefore(const addrinfo& address, const addrinfo* first) {
  for (; first != &address; first = first->ai_next)
    if (first->ai_addrlen == address.ai_addrlen &&
        memcmp(first->ai_addr, address.ai_addr, address.ai_addrlen) == 0)
      return true;
  return false;
}

Listened ListenAtEach(const addrinfo* addresses, int port) {
  Listened all;
  all.port = port;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    if (IsNamedBefore(*at, addresses)) continue;
    SetPort(all.port, at->ai_addr);
    Descriptor one(socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int failed = Listen(*at, one);
    SetPort(0, at->ai_addr);
    if (all.error == 0 || failed == EADDRINUSE) all.error = failed;
    if (failed != 0) continue;
    if (all.port == 0) all.port = PortOf(one);
    all.sockets.push_back(std::move(one));
  }
  return all;
}

// UNAVAILABLE: the host is unknown.
absl::StatusOr<Listened> ListenAt(const HostPort& wanted) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(wanted.host.c_str(), "0", &hints, &found); error != 0)
    return absl::UnavailableError(
        absl::StrCat("the host ", wanted.host, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Listened all = ListenAtEach(found, wanted.port);
  // A port that is free on the first address may be taken on the next.
  for (int i = 1; wanted.port == 0 && !all.ok() && i < kAnyPortAttempts; ++i)
    all = ListenAtEach(found, 0);
  return all;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status CheckSocketPath(const std::string& path) {
  const std::string address = absl::StrCat(kUnixPrefix, path);
  if (path.size() > kSocketPathBytesMax)
    return CannotListen(address, absl::StrCat("the path has ", path.size(), " bytes; the limit is ",
                                              kSocketPathBytesMax));
  struct stat found;
  const std::string folder = FolderOf(path);
  if (stat(folder.c_str(), &found) != 0)
    return CannotListen(address, absl::StrCat("the folder ", folder, ": ", strerror(errno)));
  if (!S_ISDIR(found.st_mode)) return CannotListen(address, absl::StrCat(folder, " is no folder"));
  if (lstat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode))
    return CannotListen(address, "there is something else of this name, and no socket");
  return absl::OkStatus();
}

absl::Status InUse(const std::string& path, int64_t pid) {
  return CannotListen(
      absl::StrCat(kUnixPrefix, path),
      absl::StrCat("the socket is in use by ", pid > 0 ? ProcessName(pid) : "another process"));
}

// REQUIRES: `path` has at most kSocketPathBytesMax.
sockaddr_un SocketAddress(const std::string& path) {
  WARPCALL_CHECK(path.size() <= kSocketPathBytesMax, path.size());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, kSocketPathBytesMax);
  return address;
}

// OK when nobody listens at the socket without a lock, as older servers do.
absl::Status CheckNobodyListens(const std::string& path) {
  const sockaddr_un address = SocketAddress(path);
  const Descriptor caller(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ucred owner = {};
  socklen_t bytes = sizeof(owner);
  if (caller.get() >= 0 &&
      connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    getsockopt(caller.get(), SOL_SOCKET, SO_PEERCRED, &owner, &bytes);
    return InUse(path, owner.pid);
  }
  switch (errno) {
    case ECONNREFUSED:
    case ENOENT:
      return absl::OkStatus();
    case EAGAIN:  // the backlog is full
    case EACCES:
      return InUse(path, 0);
    default:
      return CannotListen(absl::StrCat(kUnixPrefix, path),
                          absl::StrCat("connecting to the socket: ", strerror(errno)));
  }
}

// Returns the process id that the lock's holder wrote into the file; 0 if it has not written one.
int64_t HolderOf(int lock) {
  char text[32];
  const ssize_t bytes = pread(lock, text, sizeof(text), 0);
  int64_t pid = 0;
  if (bytes <= 0 || !absl::SimpleAtoi(absl::string_view(text, static_cast<size_t>(bytes)), &pid))
    return 0;
  return pid;
}

// Returns true if `file` is the file at `path`; false if that was removed or replaced.
bool LiesAt(const std::string& path, int file) {
  struct stat ours, theirs;
  return fstat(file, &ours) == 0 && stat(path.c_str(), &theirs) == 0 &&
         ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  HostPort parsed;
  // Digits alone, which gRPC takes as well.
  if (colon == 0 || absl::StartsWith(address, kUnixPrefix) || port.size() > kPortDigitsMax ||
      port.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(port, &parsed.port) || parsed.port > 65535)
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is not HOST:PORT with a port of 0 to 65535"));
  parsed.host = address.substr(0, colon);
  if (parsed.host.front() == '[' && parsed.host.back() == ']')
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  return parsed;
}

HostPort ForThisMachine(HostPort wanted) {
  in6_addr address;
  if (inet_pton(AF_INET6, wanted.host.c_str(), &address) == 1 &&
      IN6_IS_ADDR_UNSPECIFIED(&address) && !HasIpv6())
    wanted.host = kAllOfIpv4;
  return wanted;
}

bool IsLocal(const std::string& address) {
  if (absl::StartsWith(address, kUnixPrefix)) return true;
  const absl::StatusOr<HostPort> wanted = ParseHostPort(address);
  addrinfo* found = nullptr;
  if (!wanted.ok() || getaddrinfo(wanted->host.c_str(), nullptr, nullptr, &found) != 0)
    return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
    if (!IsLoopback(*at->ai_addr)) return false;
  return true;
}

absl::Status CheckHostPort(const std::string& address) {
  return ListeningSockets::Open(address).status();
}

int CountDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return 0;
  int entries = 0;
  while (readdir(folder.get()) != nullptr) ++entries;
  return entries - 3;  // ".", ".." and the folder itself
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& address) {
  if (absl::StartsWith(address, kUnixPrefix)) return OpenAt(address.substr(strlen(kUnixPrefix)));
  HostPort wanted;
  ASSIGN_OR_RETURN(wanted, ParseHostPort(address));
  if (wanted.host == kAllOfIpv4) wanted.host = kAll;
  absl::StatusOr<Listened> all = ListenAt(ForThisMachine(wanted));
  // Where IPv6 is there and forbidden.
  if (all.ok() && !all->ok() && all->error != EADDRINUSE && wanted.host == kAll)
    all = ListenAt({kAllOfIpv4, wanted.port});
  if (!all.ok()) return CannotListen(address, all.status().message());
  if (!all->ok()) return CannotListen(address, WhyNotBound(all->error, all->port));
  ListeningSockets listening;
  listening.address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", all->port);
  listening.sockets_ = std::move(all->sockets);
  return listening;
}

absl::StatusOr<ListeningSockets> ListeningSockets::OpenAt(const std::string& path) {
  ListeningSockets listening;
  listening.address_ = absl::StrCat(kUnixPrefix, path);
  ASSIGN_OR_RETURN(SocketLock lock, SocketLock::Take(path));
  listening.lock_.emplace(std::move(lock));
  unlink(path.c_str());  // left by a server that ended; SocketLock saw that it is a socket
  const sockaddr_un address = SocketAddress(path);
  Descriptor one(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (one.get() < 0 ||
      bind(one.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return CannotListen(listening.address_, strerror(errno));
  listening.sockets_.push_back(std::move(one));
  if (listen(listening.sockets_.front().get(), kBacklog) != 0)
    return CannotListen(listening.address_, strerror(errno));
  return listening;
}

ListeningSockets::~ListeningSockets() {
  if (lock_.has_value() && !sockets_.empty()) unlink(address_.c_str() + strlen(kUnixPrefix));
}

absl::StatusOr<SocketLock> SocketLock::Take(const std::string& path) {
  RETURN_IF_ERROR(CheckSocketPath(path));
  const std::string lock_path = absl::StrCat(path, ".lock");
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    Descriptor file(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file.get() < 0)
      return CannotListen(absl::StrCat(kUnixPrefix, path),
                          absl::StrCat("its lock ", lock_path, ": ", strerror(errno)));
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return InUse(path, HolderOf(file.get()));
    if (!LiesAt(lock_path, file.get())) continue;
    SocketLock lock(lock_path, file.release());
    RETURN_IF_ERROR(CheckNobodyListens(path));
    const std::string pid = absl::StrCat(getpid());
    if (ftruncate(lock.file_, 0) != 0 || pwrite(lock.file_, pid.data(), pid.size(), 0) < 0)
      return CannotListen(absl::StrCat(kUnixPrefix, path),
                          absl::StrCat("its lock ", lock_path, ": ", strerror(errno)));
    return lock;
  }
  return InUse(path, 0);
}

SocketLock::SocketLock(SocketLock&& other) noexcept
    : lock_path_(std::move(other.lock_path_)), file_(std::exchange(other.file_, -1)) {}

SocketLock::~SocketLock() {
  if (file_ < 0) return;
  unlink(lock_path_.c_str());  // while it is locked: see LiesAt
  close(file_);
}

}  // namespace warpcall
