#include "client/cpp/channel.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/retry.h"

namespace warpcall::client {
namespace {

constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";

// gRPC's own advice: larger frames cost less work per byte of a large message and make its
// neighbours on the connection wait longer. Of 16 KiB (the default) to 16 MiB nothing stood out
// against a CPU server on two cores.
constexpr int kFrameBytes = 4 << 20;
// A lost server is looked for again after 100 ms, and every 2 s at most: gRPC's own 1 s and 120 s
// would outlast every attempt of a call. The client's retries do the backing off. Not
// GRPC_ARG_MIN_RECONNECT_BACKOFF_MS: in spite of its name that is how long an attempt to connect
// may take, and 20 s, the default, is right for a distant server.
constexpr int kReconnectMinMs = 100;
constexpr int kReconnectMaxMs = 2000;

// With keepalive on, gRPC sets TCP_USER_TIMEOUT to the keepalive timeout, which is what ends a
// stalled connection. The pings themselves matter for Unix sockets only; servers count it as abuse
// when they come more often than every 5 minutes.
constexpr int kKeepaliveMs = 6 * 60 * 1000;

grpc::ChannelArguments MakeArguments(absl::Duration stall_timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // the server limits what it sends
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  // Channels to one address would otherwise share a connection, and one connection is one core's
  // work.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Ours know of pushback limits, budgets and deadlines.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(stall_timeout)));
  return arguments;
}

void ReleaseOwner(void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); }

grpc::Slice ToSlice(const Piece& piece) {
  if (piece.owner == nullptr) return grpc::Slice(piece.bytes.data(), piece.bytes.size());
  return grpc::Slice(const_cast<char*>(piece.bytes.data()), piece.bytes.size(), ReleaseOwner,
                     new std::shared_ptr<const void>(piece.owner));
}

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

}  // namespace

struct Channel::Impl {
  Impl(const std::string& address, absl::Duration stall_timeout)
      : stub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                       MakeArguments(stall_timeout))) {}
  // Const calls only start new calls on the channel, which is thread-safe.
  mutable grpc::GenericStub stub;
};

Channel::Channel(const std::string& address, absl::Duration stall_timeout)
    : impl_(std::make_unique<Impl>(address, stall_timeout)) {}

Channel::~Channel() = default;

Reply Channel::Unary(const char* method, absl::Span<const Piece> message,
                     absl::Time deadline) const {
  Reply reply;
  absl::StatusOr<grpc::ByteBuffer> request = ToByteBuffer(message);
  if (!request.ok()) {
    reply.status = request.status();
    return reply;
  }
  grpc::ClientContext context;
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));

  // A queue of its own for each call: this thread polls the socket and wakes no other.
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  auto call = impl_->stub.PrepareUnaryCall(&context, method, *request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }

  reply.status =
      absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  const auto& trailers = context.GetServerTrailingMetadata();
  if (const auto found = trailers.find(kPushbackTrailer); found != trailers.end())
    reply.pushback_ms = ParsePushbackMs({found->second.data(), found->second.size()});
  if (!reply.status.ok()) return reply;

  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (!response.Dump(slices.get()).ok()) {
    reply.status = absl::InternalError(absl::StrCat("the response of ", method, " is unreadable"));
    return reply;
  }
  for (const grpc::Slice& slice : *slices)
    reply.fragments.push_back({reinterpret_cast<const char*>(slice.begin()), slice.size()});
  reply.owner = std::move(slices);
  return reply;
}

}  // namespace warpcall::client
