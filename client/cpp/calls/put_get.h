// Reads and writes the messages of Put and Get; transport is elsewhere. Internal to the library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/calls/incoming.h"
#include "client/cpp/codec/output_buffers.h"
#include "client/cpp/codec/resident_codec.h"
#include "client/cpp/rpc/channel.h"
#include "warpcall/client.h"

namespace warpcall::client {

// One tensor over one stream to the server.
class PutSession final : public StreamHandler {
 public:
  // `tensor`, whose bytes fit its shape or which has none, outlives the session; `header` is
  // EncodePutHeader's. Borrowed bytes are held by `borrowed_owner`.
  PutSession(const Tensor& tensor, std::string header, int64_t chunk_bytes,
             std::shared_ptr<const void> borrowed_owner)
      : tensor_(tensor),
        header_(std::move(header)),
        chunk_bytes_(static_cast<size_t>(chunk_bytes)),
        borrowed_owner_(std::move(borrowed_owner)) {}

  absl::StatusOr<std::vector<Piece>> NextMessage() override;
  absl::Status HandleMessage(Fragments message) override;

  // The server's answer; INTERNAL when none came. REQUIRES: no other thread uses the session.
  absl::StatusOr<Placed> TakePlaced();

 private:
  // The sending thread's.
  const Tensor& tensor_;
  const std::string header_;
  const size_t chunk_bytes_;
  const std::shared_ptr<const void> borrowed_owner_;
  bool header_sent_ = false;
  size_t sent_ = 0;
  // The receiving thread's.
  std::optional<Placed> placed_;
};

// One tensor over one stream from the server.
class GetSession final : public StreamHandler {
 public:
  explicit GetSession(std::string request) : request_(std::move(request)) {}

  absl::StatusOr<std::vector<Piece>> NextMessage() override;
  absl::Status HandleMessage(Fragments message) override;

  // INTERNAL unless all of it came. REQUIRES: no other thread uses the session.
  absl::StatusOr<Tensor> TakeTensor();

 private:
  const std::string request_;
  bool request_sent_ = false;  // the sending thread's
  // The receiving thread's.
  bool header_came_ = false;
  IncomingTensors incoming_;
  OutputBuffers buffers_;
};

}  // namespace warpcall::client
