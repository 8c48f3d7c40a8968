// Inflates messages that clients compressed, each up to its method's limit.
//
// gRPC 1.51 inflates a message whole before it looks at any limit, and before the server knows who
// calls: 1.5 MB of gzip became 1.6 GiB. The server therefore switches gRPC's decompression off and
// hands messages to this class, once their caller has been admitted.
#pragma once

#include <grpc/compression.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/transport/background_thread.h"

namespace warpcall {

// Memory of inflated messages that are still in use, in all and by principal. Thread-safe.
class InflatedBytes {
 public:
  // Each principal may have `principal_max`, and all together twice as much: whatever one holds,
  // the others have as much as he may.
  explicit InflatedBytes(int64_t principal_max) : principal_max_(principal_max) {}

  // RESOURCE_EXHAUSTED names the limit that `bytes` more would exceed, and what is in use of it.
  absl::Status Take(uint64_t principal, int64_t bytes);
  void GiveBack(uint64_t principal, int64_t bytes);
  int64_t in_use() const;

 private:
  const int64_t principal_max_;
  mutable absl::Mutex mutex_;
  int64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  // By Principal::id; of those only that have some.
  absl::flat_hash_map<uint64_t, int64_t> by_principal_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe.
class Inflater {
 public:
  // See InflatedBytes.
  explicit Inflater(int64_t principal_bytes_max)
      : bytes_(std::make_shared<InflatedBytes>(principal_bytes_max)) {}

  static bool IsCompressed(const grpc::ByteBuffer& message);

  // Replaces `message`, of `principal`, by what it inflates to, and lets go of the compressed
  // bytes. Does nothing to a message that is not compressed. RESOURCE_EXHAUSTED: it inflates to
  // more than `limit` bytes, or would take more memory than InflatedBytes lets it.
  // INVALID_ARGUMENT: its bytes are not of the format that the call's header names.
  absl::Status Inflate(uint64_t principal, int64_t limit, grpc::ByteBuffer* message) const;

  // Calls `done` with the result of Inflate: before it returns where the message is small,
  // otherwise on the inflater's thread. `message` must stay where it is until then.
  void InflateAsync(uint64_t principal, int64_t limit, grpc::ByteBuffer* message,
                    absl::AnyInvocable<void(const absl::Status&)> done);

  // Makes an answer of `bytes`, which counts as an inflated message of `principal` until nobody
  // refers to it. RESOURCE_EXHAUSTED as Inflate.
  absl::Status Charge(uint64_t principal, std::string bytes, grpc::ByteBuffer* message) const;

  int64_t bytes_in_use() const { return bytes_->in_use(); }

 private:
  const std::shared_ptr<InflatedBytes> bytes_;  // shared with messages, which may outlive this
  BackgroundThread thread_;
};

}  // namespace warpcall
