// Which connections are open, and from whom: how many there may be, so that nobody takes the
// descriptors that the server and other clients need.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "server/engine/clock.h"

namespace warpcall {

struct ConnectionLimits {
  int all = 0;
  int from_one_source = 0;
};

// For a process that may have `descriptors_max` descriptors and has `descriptors_open` now, before
// the first connection.
ConnectionLimits ConnectionLimitsFor(int64_t descriptors_max, int64_t descriptors_open);

// Who is at the other end of `socket`: an IPv4 address, the /64 network of an IPv6 address (one
// machine has all addresses of such a network), or the user of a Unix socket's client. "" where the
// peer has gone.
std::string SourceOf(int socket);

// gRPC owns the sockets and closes them without a word, so the end of a connection is found out
// when a limit is met: by then its descriptor is no longer the socket that it was, which its inode
// tells. Not thread-safe.
class Connections {
 public:
  enum class Verdict { kAdmitted, kTooMany, kTooManyFromSource };

  // Between two searches for connections that have ended. One takes a millisecond for thousands.
  static constexpr int64_t kSweepNs = 50'000'000;

  // `inode_of` returns the inode of a descriptor that is a socket, or 0.
  Connections(ConnectionLimits limits, Clock clock,
              absl::AnyInvocable<uint64_t(int) const> inode_of);
  // With the system's inodes.
  Connections(ConnectionLimits limits, Clock clock);

  // Counts `socket`, which has just been accepted, unless there are as many as there may be.
  Verdict Admit(int socket, const std::string& source);

  // Closes both directions of every connection that is open; whoever owns the sockets finds that
  // out as if the peers had gone.
  void ShutDown();

  // Whether another connection would be one too many.
  bool full();
  // At most; exact after a search.
  int open() const { return static_cast<int>(open_.size()); }
  const ConnectionLimits& limits() const { return limits_; }

 private:
  struct Open {
    uint64_t inode;
    std::string source;
  };

  int From(const std::string& source) const;
  void Remove(absl::flat_hash_map<int, Open>::iterator ended);
  // Forgets connections that have ended, unless it did so a moment ago.
  void Sweep();

  const ConnectionLimits limits_;
  const Clock clock_;
  const absl::AnyInvocable<uint64_t(int) const> inode_of_;
  absl::flat_hash_map<int, Open> open_;  // by descriptor
  absl::flat_hash_map<std::string, int> from_;
  int64_t next_sweep_ns_ = 0;
};

}  // namespace warpcall
