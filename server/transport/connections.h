// Which connections are open, and from whom: how many there may be, so that nobody takes the
// descriptors that the server and other clients need.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"

namespace warpcall {

struct ConnectionLimits {
  int all = 0;
  int from_one_source = 0;
};

// The resources that a process has for connections.
struct ConnectionMeans {
  int64_t descriptors_max;
  int64_t descriptors_open;  // before the first connection
  // Memory that the flags allow. A connection with 32 calls whose answers nobody reads takes half a
  // MiB outside gRPC's quota, so the limit is one connection per half MiB.
  int64_t memory_mib;
};
ConnectionLimits ConnectionLimitsFor(const ConnectionMeans& means);

// gRPC owns the sockets and closes them without a word, so the end of a connection is found out
// when a limit is met: by then its descriptor is no longer the socket that it was, which its inode
// tells. Thread-safe.
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

  struct Client {
    std::string source;  // see SourceOf
    std::string peer;    // see PeerNameOf
  };
  // Counts `socket`, which has just been accepted, unless there are as many as there may be.
  Verdict Admit(int socket, const Client& client);

  // Returns who is at the other end of the newest connection that gRPC names `peer`; "" where there
  // is none.
  std::string FindSource(absl::string_view peer) const;
  // Returns true if the newest connection that gRPC names `peer` is open.
  bool IsOpen(absl::string_view peer) const;
  // Returns true if some connection from `source` is open, by a search at most kSweepNs old.
  bool IsAnyOpenFrom(const std::string& source);

  // Closes both directions of every open connection; the sockets' owner sees that as if the peers
  // had left.
  void ShutDown();

  // Returns true if the connection limit is reached.
  bool full();
  // Upper bound of the open connections; exact after a search.
  int open() const;
  const ConnectionLimits& limits() const { return limits_; }

 private:
  struct Open {
    uint64_t inode;
    Client client;
  };
  using ByDescriptor = absl::flat_hash_map<int, Open>;

  bool IsFull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int From(const std::string& source) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  ByDescriptor::const_iterator Find(absl::string_view peer) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Remove(ByDescriptor::iterator ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets connections that have ended, unless it did so a moment ago.
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ConnectionLimits limits_;
  const Clock clock_;
  const absl::AnyInvocable<uint64_t(int) const> inode_of_;
  mutable absl::Mutex mutex_;
  ByDescriptor open_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, int> by_peer_ ABSL_GUARDED_BY(mutex_);  // descriptors
  absl::flat_hash_map<std::string, int> from_ ABSL_GUARDED_BY(mutex_);
  int64_t next_sweep_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace warpcall
