#include "client/cpp/rpc/channel.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <thread>

#include "absl/base/call_once.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/rpc/message.h"
#include "client/cpp/rpc/stream_loop.h"

namespace warpcall::client {
namespace {

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

// The first thread of a process that waits for an absl::Mutex behind another reads the CPU's clock
// rate, from a file that many machines lack, which leaves ENOENT in errno. gRPC 1.51 takes locks
// between connect() and its look at errno: where the two meet, a connection under way counts as
// refused ("No such file or directory"), and every call on its channel with it. So two threads wait
// here first.
void WaitBehindAnotherThread() {
  absl::Mutex mutex;
  bool waits = false;
  bool may_end = false;
  std::thread other([&] {
    absl::MutexLock lock(&mutex);
    waits = true;
    mutex.Await(absl::Condition(&may_end));
  });
  {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(&waits));
    const bool never = false;
    mutex.AwaitWithTimeout(absl::Condition(&never), absl::Nanoseconds(1));
    may_end = true;
  }
  other.join();
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
    : impl_(std::make_unique<Impl>(address, stall_timeout)) {
  static absl::once_flag waited;
  absl::call_once(waited, WaitBehindAnotherThread);
}

Channel::~Channel() = default;

Reply Channel::Unary(const char* method, absl::Span<const Piece> message, absl::Time deadline,
                     Cancellation* cancellation) const {
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
  if (cancellation != nullptr) cancellation->Add(&context);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (cancellation != nullptr) cancellation->Remove(&context);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }

  reply = EndOfCall(status, context);
  if (reply.status.ok()) reply.status = TakeFragments(response, &reply);
  return reply;
}

Reply Channel::Stream(const char* method, absl::Time deadline, StreamHandler* handler) const {
  return StreamLoop(&impl_->stub, method, deadline, handler).Run();
}

void Cancellation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

void Cancellation::WaitFor(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), timeout);
}

void Cancellation::Add(grpc::ClientContext* call) {
  absl::MutexLock lock(&mutex_);
  calls_.push_back(call);
  if (cancelled_) call->TryCancel();
}

void Cancellation::Remove(grpc::ClientContext* call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(std::remove(calls_.begin(), calls_.end(), call), calls_.end());
}

}  // namespace warpcall::client
