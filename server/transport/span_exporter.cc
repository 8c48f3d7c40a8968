#include "server/transport/span_exporter.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/common/http_proxy.h"
#include "server/engine/clock.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

namespace collector = opentelemetry::proto::collector::trace::v1;

// As OpenTelemetry's own exporters do by default, but that a batch waits one second, not five.
constexpr size_t kRecordsOfBatch = 512;
constexpr absl::Duration kBatchTimeout = absl::Seconds(1);
constexpr absl::Duration kSendTimeout = absl::Seconds(10);
constexpr int kAttemptsMax = 4;
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
// Once the server ends.
constexpr absl::Duration kLastSendTimeout = absl::Seconds(1);

std::shared_ptr<grpc::Channel> Connect(const OtlpEndpoint& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, HttpProxyFor(endpoint.address).has_value());
  return grpc::CreateCustomChannel(endpoint.address,
                                   endpoint.tls
                                       ? grpc::SslCredentials(grpc::SslCredentialsOptions())
                                       : grpc::InsecureChannelCredentials(),
                                   arguments);
}

// Wall clock time at which MonotonicNs was 0.
int64_t UnixNs() { return absl::GetCurrentTimeNanos() - MonotonicNs(); }

// The codes after which the protocol has the same spans sent again.
bool MaySendAgain(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& text) {
  absl::string_view rest = text;
  OtlpEndpoint endpoint;
  const bool plain = absl::ConsumePrefix(&rest, "http://");
  endpoint.tls = !plain && absl::ConsumePrefix(&rest, "https://");
  if (plain || endpoint.tls) absl::ConsumeSuffix(&rest, "/");
  endpoint.address = std::string(rest);
  if (!plain && !endpoint.tls && absl::ConsumePrefix(&rest, "unix:") && !rest.empty())
    return endpoint;
  const size_t colon = rest.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || colon == 0 || rest.find('/') != absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port == 0 || port > 65535)
    return absl::InvalidArgumentError(absl::StrCat(
        "--otlp_endpoint: \"", text, "\" is not a collector's address; it must be HOST:PORT, ",
        "http://HOST:PORT, https://HOST:PORT or unix:PATH, with a port from 1 to 65535"));
  return endpoint;
}

SpanExporter::SpanExporter(tracing::Tracer* tracer, SpanSource source, const OtlpEndpoint& endpoint)
    : tracer_(tracer),
      source_(std::move(source)),
      address_(endpoint.address),
      stub_(collector::TraceService::NewStub(Connect(endpoint))),
      thread_([this] {
        Run();
        ended_.Notify();
      }) {}

SpanExporter::~SpanExporter() {
  tracer_->Stop();
  // A send that began earlier has had at least as much time.
  if (!ended_.WaitFor(kLastSendTimeout)) {
    absl::MutexLock lock(&mutex_);
    if (under_way_ != nullptr) under_way_->TryCancel();
  }
  thread_.join();
}

void SpanExporter::Run() {
  bool last_failed = false;
  for (bool more = true; more;) {
    more = !tracer_->stopped();
    const std::vector<tracing::Record> records = tracer_->Take(kRecordsOfBatch, kBatchTimeout);
    if (records.empty()) continue;
    const grpc::Status status = Send(ToSpanMessages(records, source_, UnixNs()));
    if (status.ok()) {
      tracer_->CountSent(records.size());
    } else {
      tracer_->CountFailed(records.size());
      if (!last_failed) LogFailure(status);
    }
    last_failed = !status.ok();
  }
}

void SpanExporter::LogFailure(const grpc::Status& status) const {
  const std::optional<HttpProxy> proxy = HttpProxyFor(address_);
  const std::string through =
      proxy.has_value() ? absl::StrCat(proxy->address, " (", proxy->variable, ")") : "none";
  Log(LogLevel::kWarning, "the collector takes no spans",
      {{"otlp_endpoint", address_}, {"proxy", through}, {"error", status.error_message()}});
}

grpc::Status SpanExporter::SendOnce(const collector::ExportTraceServiceRequest& request) {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    under_way_ = &context;
  }
  const bool last = tracer_->stopped();
  if (last) {  // it ends by itself
    absl::MutexLock lock(&mutex_);
    under_way_ = nullptr;
  }
  const absl::Duration timeout = last ? kLastSendTimeout : kSendTimeout;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
  collector::ExportTraceServiceResponse response;
  grpc::Status status = stub_->Export(&context, request, &response);
  absl::MutexLock lock(&mutex_);
  under_way_ = nullptr;
  return status;
}

grpc::Status SpanExporter::Send(const collector::ExportTraceServiceRequest& request) {
  grpc::Status status;
  absl::Duration pause = kFirstPause;
  for (int attempt = 1;; ++attempt, pause *= 2) {
    status = SendOnce(request);
    if (status.ok() || !MaySendAgain(status.error_code()) || attempt == kAttemptsMax) return status;
    if (!tracer_->AwaitStop(pause)) continue;
    return status;
  }
}

}  // namespace warpcall
