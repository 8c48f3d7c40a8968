// Listens at TCP addresses and Unix sockets. Errors tell apart why a server can't have an address;
// a lock decides which server may listen at a Unix socket.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/common/descriptor.h"

namespace warpcall {

// Prefix of Unix socket addresses.
inline constexpr char kUnixPrefix[] = "unix:";

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;
};

// INVALID_ARGUMENT: it is not HOST:PORT with a port of 0 to 65535.
absl::StatusOr<HostPort> ParseHostPort(const std::string& address);

// Returns the address to bind. On a machine without IPv6, [::] (all addresses) becomes 0.0.0.0, as
// in gRPC; any other address is `wanted`.
HostPort ForThisMachine(HostPort wanted);

// Returns true if only processes of this machine can reach the address: a Unix socket, or a host
// with loopback addresses only. An unknown host is not local.
bool IsLocal(const std::string& address);

// Listens at HOST:PORT and stops at once. UNAVAILABLE says what is wrong: see ListeningSockets.
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

// How many descriptors this process has open; 0 where the system does not say.
int CountDescriptors();

// The sockets that listen at one address, non-blocking and closed on exec: one for each address
// that the host has. All addresses of IPv4, 0.0.0.0, include those of IPv6 where the machine has
// them, as in gRPC's own servers. Move-only.
class ListeningSockets {
 public:
  // `address` is HOST:PORT (port 0: any free one, the same for all sockets) or unix:PATH.
  // UNAVAILABLE says what is wrong: the host is unknown, this machine has no such address, the port
  // is in use (and by which process, where that can be seen), it takes a permission; or what
  // SocketLock says.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  ListeningSockets(ListeningSockets&&) = default;
  ListeningSockets& operator=(ListeningSockets&&) = delete;
  // Removes a Unix socket's path.
  ~ListeningSockets();

  // With the port that was bound.
  const std::string& address() const { return address_; }
  const std::vector<Descriptor>& sockets() const { return sockets_; }

 private:
  ListeningSockets() = default;
  static absl::StatusOr<ListeningSockets> OpenAt(const std::string& path);

  std::string address_;
  std::optional<SocketLock> lock_;  // for a Unix socket; held until its path is removed
  std::vector<Descriptor> sockets_;
};

}  // namespace warpcall
