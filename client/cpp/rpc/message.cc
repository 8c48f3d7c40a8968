#include "client/cpp/rpc/message.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/retry.h"

namespace warpcall::client {
namespace {

constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice ToSlice(const Piece& piece) {
  if (piece.owner == nullptr) return grpc::Slice(piece.bytes.data(), piece.bytes.size());
  return grpc::Slice(const_cast<char*>(piece.bytes.data()), piece.bytes.size(), ReleaseOwner,
                     new std::shared_ptr<const void>(piece.owner));
}

}  // namespace

absl::StatusOr<grpc::ByteBuffer> ToByteBuffer(absl::Span<const Piece> message) {
  int64_t bytes = 0;
  std::vector<grpc::Slice> slices;
  slices.reserve(message.size());
  for (const Piece& piece : message) {
    bytes += static_cast<int64_t>(piece.bytes.size());
    if (!piece.bytes.empty()) slices.push_back(ToSlice(piece));
  }
  if (bytes > kMessageBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(
        "the request has ", bytes, " bytes; a gRPC message has at most ", kMessageBytesMax));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status TakeFragments(const grpc::ByteBuffer& message, Reply* reply) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!message.Dump(slices.get()).ok())
    return absl::InternalError("a message from the server is unreadable");
  for (const grpc::Slice& slice : *slices)
    reply->fragments.push_back({reinterpret_cast<const char*>(slice.begin()), slice.size()});
  reply->owner = std::move(slices);
  return absl::OkStatus();
}

Reply EndOfCall(const grpc::Status& status, const grpc::ClientContext& context) {
  Reply reply;
  reply.status =
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto found = trailers.find(kPushbackTrailer); found != trailers.end())
    reply.pushback_ms = ParsePushbackMs({found->second.data(), found->second.size()});
  return reply;
}

}  // namespace warpcall::client
