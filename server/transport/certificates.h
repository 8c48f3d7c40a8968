// gRPC's credentials over certificates that may be exchanged while the server runs.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/access/tls_files.h"

namespace grpc {
class ServerCredentials;
}

namespace warpcall {

// Connections that there are keep what they began with; new ones get what was last read. gRPC 1.51
// takes new certificates only from files that it reads itself, once a second, and believes whatever
// stands there, a half-written file included. So it reads copies in memory, of what was checked.
// Thread-safe.
class Certificates {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<Certificates>> Open(TlsFiles files);
  ~Certificates();

  std::shared_ptr<grpc::ServerCredentials> credentials() const;

  // When the server's certificate ends that was read last.
  absl::Time expiry() const;

  // Reads the files now, and says in words what came of it; on an error what counted before counts.
  absl::StatusOr<std::string> ReadAgain();

 private:
  // A file in memory whose content is exchanged as a whole.
  class Copy;

  explicit Certificates(TlsFiles files);

  const TlsFiles files_;
  mutable absl::Mutex mutex_;
  const std::unique_ptr<Copy> identity_ ABSL_PT_GUARDED_BY(mutex_);
  const std::unique_ptr<Copy> client_ca_ ABSL_PT_GUARDED_BY(mutex_);
  absl::Time expiry_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string identity_path_;
  std::string client_ca_path_;
};

}  // namespace warpcall
