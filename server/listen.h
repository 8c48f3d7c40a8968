// What keeps a server from listening at an address, told apart, and who may listen at a Unix
// socket.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace warpcall {

// What the addresses of Unix sockets begin with.
inline constexpr char kUnixPrefix[] = "unix:";

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;
};

// INVALID_ARGUMENT: it is not HOST:PORT with a port of 0 to 65535.
absl::StatusOr<HostPort> ParseHostPort(const std::string& address);

// What to bind for it: 0.0.0.0 where it is [::], all addresses, of a machine without IPv6, as gRPC
// does; otherwise `wanted`.
HostPort ForThisMachine(HostPort wanted);

// Whether nobody but processes of this machine reaches the address: a Unix socket, or a host all of
// whose addresses are loopback ones. A host that is not known does not count as such.
bool IsLocal(const std::string& address);

// Binds a socket to HOST:PORT and gives it up again. UNAVAILABLE says what is wrong: the host is
// unknown, this machine has no such address, the port is in use (and by which process, where that
// can be seen), it takes a permission.
absl::Status CheckHostPort(const std::string& address);

// The right to listen at a Unix socket: a lock on PATH.lock, which the system takes back when the
// process ends, however it does. Move-only.
class SocketLock {
 public:
  // UNAVAILABLE says what is wrong with `path`, or who has it. A socket that a dead server left is
  // free: gRPC takes its place.
  static absl::StatusOr<SocketLock> Take(const std::string& path);

  SocketLock(SocketLock&& other) noexcept;
  SocketLock& operator=(SocketLock&&) = delete;
  // Gives it back, and removes PATH.lock.
  ~SocketLock();

 private:
  SocketLock(std::string lock_path, int file) : lock_path_(std::move(lock_path)), file_(file) {}

  std::string lock_path_;
  int file_;  // -1: moved away
};

}  // namespace warpcall
