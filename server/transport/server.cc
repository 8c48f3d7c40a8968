#include "server/transport/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/time/clock.h"
#include "proto/common/status_macros.h"
#include "proto/common/steady_wait.h"
#include "server/log/log.h"
#include "server/transport/caller.h"
#include "server/transport/health_service.h"
#include "server/transport/inference/inference_service.h"
#include "server/transport/kernel_service.h"
#include "server/transport/load_report.h"
#include "server/transport/peers.h"
#include "server/transport/reflection_service.h"

namespace warpcall {
namespace {

// Calls that one connection may have open; gRPC's clients keep back what exceeds it. More make no
// connection faster, but more is the work that a burst brings to gRPC's threads at one time, for
// which everyone else waits.
constexpr int kStreamsPerConnectionMax = 32;
// Connections that receive much come to read so much per wake-up: as far as gRPC 1.51.1 heeds it,
// which in its default mode (the experiment tcp_read_chunks) reads up to 4 MiB. They begin with 8
// KiB: gRPC keeps a read buffer for every connection, and with 1 MiB from the start a thousand idle
// ones took 200 to 370 MiB, most of which malloc kept when they had gone; so it is 30.
constexpr int kTcpReadChunkBytesMax = 1 << 20;

// Time limit for the TLS and HTTP/2 handshakes. A peer that does not complete them holds a
// descriptor and a thread until then; gRPC would wait for two minutes.
constexpr int kHandshakeMsMax = 20'000;
// A connection without calls is closed after so long; clients make another when they need one.
constexpr int kIdleMsMax = 30 * 60 * 1000;
// A peer that is gone without a word is found out by a ping after so long without a byte of it, and
// closed when none has come so much later.
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;
// Pings of clients are answered where this much lies between two. Usual clients leave 10 s or more,
// of which the network may take some.
constexpr int kPingIntervalMsMin = 5'000;
// Metadata of a call, in one frame. Over more gRPC 1.51 ends the connection, with the calls of
// everybody whom a proxy sends by it, so the limit is above what the proxies of deploy/ pass.
// Identify refuses a call with more than 8 KiB by itself.
constexpr int kMetadataBytesMax = 65'536;

// Bytes that a principal's inflated messages may hold besides the tensor data of the largest one:
// the rest of that message, and as much again for small messages.
constexpr int64_t kInflatedRestBytesMax = 2 * kMessageRestBytesMax;

constexpr char kShuttingDown[] = "the server is shutting down";

// How long calls must stay away for the server to count as left alone, and how long to wait for
// that.
constexpr absl::Duration kQuietPeriod = absl::Milliseconds(50);
constexpr absl::Duration kQuietTimeout = absl::Seconds(1);

void SetChannelArguments(const ExecuteDeps& deps, grpc::ServerBuilder* builder) {
  // Call enforces the limit. gRPC 1.51 looks at it only when the whole message has arrived
  // (seen: 600 MiB resident before a limit of 1 MiB refused them), and refuses without telling
  // anyone: no count, no trailer.
  builder->SetMaxReceiveMessageSize(-1);
  builder->SetMaxSendMessageSize(-1);
  // Inflater does it, within limits: every method takes raw bytes.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kTcpReadChunkBytesMax);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMsMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMsMax);
  // gRPC tells the client to open no more calls on the connection, and closes it when the last one
  // is over. By default it waits for them without an end: limits of time are the calls' own.
  if (deps.limits.max_connection_age_ms > 0)
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, deps.limits.max_connection_age_ms);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // By default gRPC ends connections over pings that come without data within five minutes, and
  // without calls within two hours.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kPingIntervalMsMin);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
}

// As gRPC's own listeners do; a Unix socket has neither option.
void SetSocketOptions(int socket) {
  const int on = 1, timeout_ms = kKeepaliveTimeoutMs;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

absl::StatusOr<std::vector<ListeningSockets>> ListenAt(const std::vector<std::string>& addresses) {
  std::vector<ListeningSockets> listening;
  for (const std::string& address : addresses) {
    ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(address));
    listening.push_back(std::move(sockets));
  }
  return listening;
}

// Returns the limits of this process, which has opened everything except connections.
ConnectionLimits LimitsOfProcess(int64_t memory_mib) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const ConnectionLimits limits =
      ConnectionLimitsFor({static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT_MAX)),
                           CountDescriptors(), memory_mib});
  Log(LogLevel::kInfo, "connection limits",
      {{"connections", limits.all},
       {"from_one_source", limits.from_one_source},
       {"descriptors", limit.rlim_cur}});
  return limits;
}

}  // namespace

absl::Status CheckReady(const ExecuteDeps& deps) {
  if (!deps.calls.accepting.load())
    return absl::UnavailableError(
        "no connections are accepted: there are as many as there may be, or no descriptors");
  if (deps.limits.gpus_min == 0) return absl::OkStatus();
  const int working = deps.engine->CountHealthy(DeviceKind::kCuda);
  if (working >= deps.limits.gpus_min) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("GPUs that work: ", working,
                                             "; at least: ", deps.limits.gpus_min, " (gpus_min)"));
}

GrpcServer::GrpcServer(ExecuteDeps* deps)
    : deps_(deps),
      reference_watch_(deps->registry->kernels().size()),
      inflater_(deps->limits.message_bytes_max + kInflatedRestBytesMax),
      sends_(deps->limits.send_ns_max),
      loads_(deps->limits.report_load ? std::make_unique<LoadReporter>(deps->engine, deps->clock)
                                      : nullptr),
      pollers_(deps->limits.pollers_few, deps->clock) {
  AddServices();
  deps->parts = {.background = &background_,
                 .inflater = &inflater_,
                 .loads = loads_.get(),
                 .pollers = &pollers_,
                 .sends = &sends_,
                 .failures = &failures_,
                 .reference_watch = &reference_watch_};
}

GrpcServer::~GrpcServer() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  health_->EndWatches(absl::UnavailableError(kShuttingDown));
  if (server_ != nullptr) server_->Shutdown();
  deps_->parts = {};
}

void GrpcServer::AddServices() {
  const auto add = [this](auto service) {
    auto* const added = service.get();
    services_.push_back(std::move(service));
    return added;
  };
  service_names_ = {v1::KernelService::service_full_name(), oip::Protocol::service_full_name()};
  health_ = add(std::make_unique<HealthService>(deps_, service_names_));
  for (const char* const name : {grpc::health::v1::Health::service_full_name(),
                                 grpc::reflection::v1::ServerReflection::service_full_name(),
                                 grpc::reflection::v1alpha::ServerReflection::service_full_name()})
    service_names_.emplace_back(name);
  add(std::make_unique<KernelService>(deps_));
  inference_ = add(std::make_unique<oip::InferenceService>(deps_));
  add(std::make_unique<ReflectionService<grpc::reflection::v1::ServerReflection>>(deps_,
                                                                                  &service_names_));
  add(std::make_unique<ReflectionService<grpc::reflection::v1alpha::ServerReflection>>(
      deps_, &service_names_));
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const std::vector<std::string>& addresses, ExecuteDeps* deps,
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  // protobuf prints a line for every malformed string; the refusal says it to whom it concerns.
  google::protobuf::SetLogHandler(nullptr);
  std::unique_ptr<GrpcServer> server(new GrpcServer(deps));
  grpc::ServerBuilder builder;
  SetChannelArguments(*deps, &builder);
  // Counts the buffers that gRPC reads into until nobody refers to them: in reception, held back by
  // a stream, waiting in a queue. When they are too much it ends calls until they are not, those of
  // connections first that have had calls open the longest, and closes idle connections.
  builder.SetResourceQuota(
      server->quota_.Resize(static_cast<size_t>(deps->limits.received_bytes_max)));
  for (const std::unique_ptr<grpc::Service>& service : server->services_)
    builder.RegisterService(service.get());
  std::vector<ListeningSockets> listening;
  ASSIGN_OR_RETURN(listening, ListenAt(addresses));
  for (const ListeningSockets& sockets : listening) server->addresses_.push_back(sockets.address());
  const bool plain = credentials == nullptr;
  if (plain) credentials = grpc::InsecureServerCredentials();
  server->connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("gRPC starts no server");
  server->open_connections_.emplace(LimitsOfProcess(deps->limits.memory_mib), deps->clock);
  deps->parts.connections = &*server->open_connections_;
  server->pollers_.Begin();
  server->SetServing(true);
  ASSIGN_OR_RETURN(server->acceptor_,
                   Acceptor::Start(std::move(listening), server->ToAcceptorOptions(plain)));
  return server;
}

Acceptor::Options GrpcServer::ToAcceptorOptions(bool plain) {
  Acceptor::Options options;
  options.connections = deps_->parts.connections;
  options.serve = [this, plain](int listener, int socket) {
    // Elsewhere gRPC 1.51 names every connection of a Unix socket "unix:"; here "fd:" and the
    // descriptor, by which `connections` knows the user.
    if (plain && IsUnixSocket(socket)) return grpc::AddInsecureChannelFromFd(server_.get(), socket);
    SetSocketOptions(socket);
    inference_->ForgetConnection(PeerNameOf(socket));
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = socket;
    connections_->HandleNewConnection(&connection);
  };
  options.on_refused = [this] { deps_->metrics->RecordRefusedConnection(); };
  options.on_accepting = [this](bool accepting) {
    deps_->calls.accepting.store(accepting);
    UpdateHealth();
  };
  return options;
}

std::string GrpcServer::GrpcVersion() { return grpc::Version(); }

void GrpcServer::SetServing(bool serving) {
  serving_.store(serving);
  UpdateHealth();
}

void GrpcServer::UpdateHealth() {
  const absl::MutexLock lock(&health_mutex_);
  const bool serving = serving_.load() && CheckReady(*deps_).ok();
  health_->SetServing(serving);
  inference_->SetServing(serving);
}

bool GrpcServer::AwaitQuiet(absl::Duration timeout) {
  const SteadyTime end = SteadyAfter(timeout);
  const SteadyTime quiet_end = SteadyAfter(kQuietTimeout);
  uint64_t seen = 0;
  while (UntilSteady(end) > absl::ZeroDuration()) {
    const uint64_t calls = deps_->calls.next_id.load();
    const bool quiet = calls == seen || UntilSteady(quiet_end) < absl::ZeroDuration();
    if (quiet && deps_->calls.open.load() == 0) return true;
    seen = calls;
    absl::SleepFor(kQuietPeriod);
  }
  return deps_->calls.open.load() == 0;
}

int64_t GrpcServer::EndStreams(const absl::Status& status) {
  return deps_->calls.streams.EndAll(status);
}

void GrpcServer::RunPeriodicChecks() {
  EndStuckSends();
  UpdateHealth();
}

void GrpcServer::EndStuckSends() {
  const std::vector<std::string> peers = sends_.Check(deps_->clock());
  if (peers.empty()) return;
  Log(LogLevel::kWarning, "ended calls whose answers nobody reads",
      {{"calls", static_cast<int64_t>(peers.size())},
       {"peer", PeerOf(*deps_, peers[0])},
       {"send_seconds", static_cast<double>(deps_->limits.send_ns_max) / 1e9}});
}

void GrpcServer::ShedReceived(int halvings) {
  const int before = std::exchange(halvings_, halvings);
  if (before == halvings) return;
  if (before == 0)
    Log(LogLevel::kWarning,
        "memory is over its limit: ending calls whose messages are on their way in");
  if (halvings == 0) Log(LogLevel::kInfo, "memory is within its limit again");
  quota_.Resize(static_cast<size_t>(deps_->limits.received_bytes_max >> halvings));
}

void GrpcServer::Shutdown() {
  acceptor_->Stop();
  health_->EndWatches(absl::UnavailableError(kShuttingDown));
  // Calls that come from now on end with UNAVAILABLE, as their connections do. gRPC 1.51 would end
  // them with CANCELLED, which no client repeats.
  acceptor_->CloseConnections();
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
}

}  // namespace warpcall
