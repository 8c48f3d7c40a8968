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
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/rpc/address.h"
#include "client/cpp/rpc/message.h"
#include "client/cpp/rpc/stream_loop.h"
#include "proto/common/http_proxy.h"

namespace warpcall::client {
namespace {

// gRPC's own advice: larger frames cost less work per byte of a large message, but make other
// messages on the connection wait longer. Frames from 16 KiB (the default) to 16 MiB performed
// alike against a CPU server on two cores.
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

// Several servers take turns, as long as their health service says that they serve: a server that
// is told to stop denies it before it refuses anything. By default gRPC stays with the first server
// that it reaches (its doc/service_config.md, and gRFC A17).
constexpr char kTurns[] = R"({"loadBalancingConfig": [{"round_robin": {}}],
                              "healthCheckConfig": {"serviceName": ""}})";
// The beginning of round_robin's error when no server can be reached, or none serves.
constexpr absl::string_view kNoneServes = "connections to all backends failing";
// Shortest time between two resolutions of a name. In gRPC's default of 30 s a rollout replaces
// servers by others that a client has never heard of.
constexpr std::chrono::milliseconds kResolutionTime(1000);

grpc::ChannelArguments MakeArguments(const std::string& address, absl::Duration stall_timeout,
                                     bool through_proxy) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, through_proxy);
  arguments.SetMaxReceiveMessageSize(-1);  // the server limits what it sends
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  // gRPC's channels share a connection where all arguments are the same, and one connection is one
  // core's work.
  static std::atomic<int> connections{0};
  arguments.SetInt("warpcall.connection", connections.fetch_add(1));
  // Ours know of pushback limits, budgets and deadlines.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KeepaliveTimeoutMs(stall_timeout));
  if (MayBeSeveral(address)) {
    arguments.SetServiceConfigJSON(kTurns);
    arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS,
                     static_cast<int>(kResolutionTime.count()));
  }
  return arguments;
}

std::shared_ptr<grpc::ChannelCredentials> MakeCredentials(const Credentials& credentials) {
  if (!credentials.tls) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({credentials.ca, credentials.key, credentials.cert});
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

// gRPC's channels to one address. Thread-safe.
class Backends {
 public:
  Backends(const std::string& address, const ChannelOptions& options, bool through_proxy)
      : address_(address),
        credentials_(MakeCredentials(options.credentials)),
        arguments_(MakeArguments(address, options.stall_timeout, through_proxy)),
        serving_(grpc::CreateCustomChannel(address_, credentials_, arguments_)) {
    if (!MayBeSeveral(address)) return;
    grpc::ChannelArguments arguments = arguments_;
    arguments.SetInt(GRPC_ARG_INHIBIT_HEALTH_CHECKING, 1);
    all_ = grpc::CreateCustomChannel(address_, credentials_, arguments);
  }

  // To the servers that say that they serve.
  std::shared_ptr<grpc::Channel> serving() const {
    absl::MutexLock lock(&mutex_);
    return serving_;
  }

  // After a call by serving() ended with `status`: the channel to make the call by once more, or
  // null. A call that gRPC sent to no server, as none serves, goes to any: a server that is told to
  // stop still serves for a while, and until the name leads to the servers that come instead there
  // may be no others.
  std::shared_ptr<grpc::Channel> AfterRefusal(const absl::Status& status) {
    if (all_ == nullptr || !absl::IsUnavailable(status) ||
        !absl::StartsWith(status.message(), kNoneServes))
      return nullptr;
    absl::MutexLock lock(&mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now >= renewal_) {
      // Resolves the name again; gRPC does so by itself only when a connection is lost.
      previous_ = std::move(serving_);
      serving_ = grpc::CreateCustomChannel(address_, credentials_, arguments_);
      renewal_ = now + kResolutionTime;
    }
    return all_;
  }

 private:
  const std::string address_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const grpc::ChannelArguments arguments_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<grpc::Channel> serving_ ABSL_GUARDED_BY(mutex_);
  // The channel that serving_ replaced; keeps the connections open until other channels use them.
  std::shared_ptr<grpc::Channel> previous_ ABSL_GUARDED_BY(mutex_);
  // serving_ is replaced at this time at the earliest.
  std::chrono::steady_clock::time_point renewal_ ABSL_GUARDED_BY(mutex_);
  // Ignores health and shares the connections of serving_. Null if the address is one server's.
  std::shared_ptr<grpc::Channel> all_;
};

}  // namespace

int KeepaliveTimeoutMs(absl::Duration stall_timeout) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(stall_timeout), 1,
                                              std::numeric_limits<int>::max()));
}

struct Channel::Impl {
  Impl(const std::string& address_in, ChannelOptions options_in)
      : address(address_in),
        options(std::move(options_in)),
        proxy(HttpProxyFor(address)),
        backends(address, options, proxy.has_value()) {}

  Reply Unary(const std::shared_ptr<grpc::Channel>& channel, const char* method,
              const grpc::ByteBuffer& request, const CallTerms& terms) const {
    grpc::ClientContext context;
    SetTerms(terms, options, &context);

    // A queue of its own for each call: this thread polls the socket and wakes no other.
    grpc::CompletionQueue queue;
    grpc::ByteBuffer response;
    grpc::Status status;
    grpc::GenericStub stub(channel);
    auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
    if (terms.cancellation != nullptr) terms.cancellation->Add(&context);
    call->StartCall();
    // Comes before the end only if it is asked for by itself.
    if (options.queued != nullptr) call->ReadInitialMetadata(&context);
    call->Finish(&response, &status, nullptr);
    void* tag;
    bool ok;
    const auto next = [&] {
      return terms.cancellation == nullptr ? queue.Next(&tag, &ok)
                                           : terms.cancellation->Next(&queue, &tag, &ok);
    };
    while (next() && tag != nullptr)
      if (ok) ReportPosition(context, options.queued);
    if (terms.cancellation != nullptr) terms.cancellation->Remove(&context);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }

    Reply reply = EndOfCall(status, context);
    if (reply.status.ok()) reply.status = TakeFragments(response, &reply);
    return reply;
  }

  // The end of a call that began at `start`.
  Reply End(Reply reply, Attempt attempt, absl::Time start) const {
    reply.status = ExplainConnection(reply.status, address, proxy);
    if (options.observe == nullptr) return reply;
    attempt.server = address;
    attempt.method = attempt.method.substr(attempt.method.rfind('/') + 1);
    for (const absl::Span<const char> fragment : reply.fragments)
      attempt.received_bytes += static_cast<int64_t>(fragment.size());
    attempt.time = absl::Now() - start;
    attempt.status = reply.status;
    options.observe(attempt);
    return reply;
  }

  const std::string address;
  const ChannelOptions options;
  const std::optional<HttpProxy> proxy;
  // Const calls only start new calls on the channels.
  mutable Backends backends;
};

Channel::Channel(const std::string& address, ChannelOptions options)
    : impl_(std::make_unique<Impl>(address, std::move(options))) {
  static std::once_flag waited;
  std::call_once(waited, WaitBehindAnotherThread);
}

Channel::~Channel() = default;

Reply Channel::Unary(const char* method, absl::Span<const Piece> message,
                     const CallTerms& terms) const {
  const absl::Time start = absl::Now();
  Reply reply;
  const absl::StatusOr<grpc::ByteBuffer> request = ToByteBuffer(message);
  if (!request.ok()) {
    reply.status = request.status();
    return reply;
  }
  Backends& backends = impl_->backends;
  reply = impl_->Unary(backends.serving(), method, *request, terms);
  if (const auto other = backends.AfterRefusal(reply.status))
    reply = impl_->Unary(other, method, *request, terms);
  const auto sent_bytes = static_cast<int64_t>(request->Length());
  return impl_->End(std::move(reply), {.method = method, .sent_bytes = sent_bytes}, start);
}

Reply Channel::Stream(const char* method, StreamHandler* handler, const CallTerms& terms) const {
  const absl::Time start = absl::Now();
  bool begun = false;
  const auto call = [&](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::GenericStub stub(channel);
    StreamLoop loop({&stub, &impl_->options}, method, handler, terms);
    Reply reply = loop.Run();
    begun = loop.begun();
    return reply;
  };
  Reply reply = call(impl_->backends.serving());
  if (!begun)
    if (const auto other = impl_->backends.AfterRefusal(reply.status)) reply = call(other);
  return impl_->End(std::move(reply), {.method = method, .stream = true}, start);
}

}  // namespace warpcall::client
