#include "client/cpp/rpc/message.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cpp/rpc/retry.h"

namespace warpcall::client {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";
constexpr char kLostHandlesTrailer[] = "warpcall-lost-handles";
constexpr char kRequestIdTrailer[] = "warpcall-request-id";
constexpr char kQueuePosition[] = "warpcall-queue-position";
constexpr char kSession[] = "warpcall-session";
constexpr char kTraceparent[] = "traceparent";

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice ToSlice(const Piece& piece) {
  if (piece.owner == nullptr) return grpc::Slice(piece.bytes.data(), piece.bytes.size());
  return grpc::Slice(const_cast<char*>(piece.bytes.data()), piece.bytes.size(), ReleaseOwner,
                     new std::shared_ptr<const void>(piece.owner));
}

// gRPC's messages for a stream that ends without the server's final status: cut by a proxy, with
// HTTP/2's NO_ERROR, INTERNAL_ERROR or CANCEL, or without a reason.
constexpr absl::string_view kBrokenOff[] = {
    "Stream removed", "Received RST_STREAM with error code 0",
    "Received RST_STREAM with error code 2", "Received RST_STREAM with error code 8"};

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

void ReportPosition(const grpc::ClientContext& context, const std::function<void(int)>& queued) {
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find(kQueuePosition);
  int ahead;
  if (found != metadata.end() &&
      absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &ahead) &&
      ahead > 0)
    queued(ahead);
}

void SetTerms(const CallTerms& terms, const ChannelOptions& options, grpc::ClientContext* context) {
  if (terms.deadline != absl::InfiniteFuture())
    context->set_deadline(absl::ToChronoTime(terms.deadline));
  if (!terms.traceparent.empty()) context->AddMetadata(kTraceparent, terms.traceparent);
  if (!options.session.empty()) context->AddMetadata(kSession, options.session);
  if (!options.credentials.token.empty())
    context->AddMetadata(kAuthorization, absl::StrCat("Bearer ", options.credentials.token));
}

absl::Status ToStatus(const grpc::Status& status) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const bool by_grpc = code == absl::StatusCode::kUnknown || code == absl::StatusCode::kInternal ||
                       code == absl::StatusCode::kCancelled;
  for (const absl::string_view said : kBrokenOff)
    if (by_grpc && status.error_message() == said)
      return absl::UnavailableError(
          absl::StrCat("the call was broken off on its way: ", status.error_message()));
  return absl::Status(code, status.error_message());
}

Reply EndOfCall(const grpc::Status& status, const grpc::ClientContext& context) {
  Reply reply;
  reply.status = ToStatus(status);
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto found = trailers.find(kPushbackTrailer); found != trailers.end()) {
    reply.pushback_ms = ParsePushbackMs({found->second.data(), found->second.size()});
    reply.status = WithRetryPushback(std::move(reply.status), *reply.pushback_ms);
  }
  if (const auto found = trailers.find(kLostHandlesTrailer); found != trailers.end())
    reply.status =
        WithLostHandles(std::move(reply.status), {found->second.data(), found->second.size()});
  if (const auto found = trailers.find(kRequestIdTrailer); found != trailers.end())
    reply.status =
        WithRequestId(std::move(reply.status), {found->second.data(), found->second.size()});
  return reply;
}

}  // namespace warpcall::client
