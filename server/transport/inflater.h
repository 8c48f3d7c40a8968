// Inflates messages that clients compressed, each up to its method's limit.
//
// gRPC 1.51 inflates a message whole before it looks at any limit, and before the server knows who
// calls: 1.5 MB of gzip became 1.6 GiB. The server therefore switches gRPC's decompression off and
// hands messages to this class, once their caller has been admitted.
#pragma once

#include <grpc/compression.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/transport/background_thread.h"

namespace warpcall {

// Thread-safe.
class Inflater {
 public:
  // `bytes_max` bounds the memory of all inflated messages that are still in use.
  explicit Inflater(int64_t bytes_max) : bytes_max_(bytes_max) {}

  static bool IsCompressed(const grpc::ByteBuffer& message);

  // Replaces `message` by what it inflates to, and lets go of the compressed bytes. Does nothing to
  // a message that is not compressed. RESOURCE_EXHAUSTED: it inflates to more than `limit` bytes,
  // or all inflated messages together have reached bytes_max. INVALID_ARGUMENT: its bytes are not
  // of the format that the call's header names.
  absl::Status Inflate(int64_t limit, grpc::ByteBuffer* message) const;

  // Calls `done` with the result of Inflate: before it returns where the message is small,
  // otherwise on the inflater's thread. `message` must stay where it is until then.
  void InflateAsync(int64_t limit, grpc::ByteBuffer* message,
                    absl::AnyInvocable<void(const absl::Status&)> done);

  // Memory of inflated messages that are in use.
  int64_t bytes_in_use() const { return bytes_in_use_->load(); }

 private:
  const int64_t bytes_max_;
  // Shared with the messages, which may outlive the inflater.
  const std::shared_ptr<std::atomic<int64_t>> bytes_in_use_ =
      std::make_shared<std::atomic<int64_t>>(0);
  BackgroundThread thread_;
};

}  // namespace warpcall
