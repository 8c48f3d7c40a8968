#include "client/cpp/calls/put_get.h"

#include <algorithm>

#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"
#include "proto/wire/chunk.h"

namespace warpcall::client {

absl::StatusOr<std::vector<Piece>> PutSession::NextMessage() {
  if (!std::exchange(header_sent_, true)) return std::vector<Piece>{OwnedPiece(header_)};
  const absl::Span<const char> data = tensor_.data().subspan(sent_);
  if (data.empty()) return std::vector<Piece>{};
  const absl::Span<const char> bytes = data.first(std::min(data.size(), chunk_bytes_));
  std::string prefix;
  wire::AppendChunkPrefix({0, static_cast<int64_t>(sent_), bytes.size()}, &prefix);
  sent_ += bytes.size();
  return std::vector<Piece>{
      OwnedPiece(std::move(prefix)),
      {bytes, tensor_.owner() == nullptr ? borrowed_owner_ : tensor_.owner()}};
}

absl::Status PutSession::HandleMessage(Fragments message) {
  if (placed_.has_value()) return BadResponse("a second PutResponse");
  ASSIGN_OR_RETURN(placed_, DecodePut(message));
  return absl::OkStatus();
}

absl::StatusOr<Placed> PutSession::TakePlaced() {
  if (!placed_.has_value()) return BadResponse("Put ended without an answer");
  return *std::move(placed_);
}

absl::StatusOr<std::vector<Piece>> GetSession::NextMessage() {
  if (std::exchange(request_sent_, true)) return std::vector<Piece>{};
  return std::vector<Piece>{OwnedPiece(request_)};
}

absl::Status GetSession::HandleMessage(Fragments message) {
  wire::StreamMessage split;
  if (const absl::Status status = wire::SplitStreamResponse(message, &split); !status.ok())
    return BadResponse(status.message());
  if (split.member == wire::StreamMember::kHeader) {
    if (std::exchange(header_came_, true)) return BadResponse("a second header");
    ASSIGN_OR_RETURN(const TensorSpec spec, DecodeGetHeader(split.payload.pieces));
    RETURN_IF_ERROR(incoming_.Expect({spec}));
    ASSIGN_OR_RETURN(buffers_, OutputBuffers::Allocate({spec}));
    return absl::OkStatus();
  }
  if (split.member != wire::StreamMember::kChunk) return absl::OkStatus();  // a later version's
  wire::ChunkView chunk;
  RETURN_IF_ERROR(incoming_.Add(split.payload.pieces, &chunk));
  chunk.data.CopyTo(buffers_.data(0) + chunk.offset);
  return absl::OkStatus();
}

absl::StatusOr<Tensor> GetSession::TakeTensor() {
  if (!header_came_) return BadResponse("Get ended without an answer");
  RETURN_IF_ERROR(incoming_.CheckComplete());
  return buffers_.Release().front();
}

}  // namespace warpcall::client
