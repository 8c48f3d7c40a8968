// Sends what a Tracer keeps to a collector of OpenTelemetry's protocol, by gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "proto/common/steady_wait.h"
#include "server/tracing/tracer.h"
#include "server/transport/span_messages.h"

namespace warpcall {

// Where a collector listens.
struct OtlpEndpoint {
  std::string address;  // for gRPC: "localhost:4317", "unix:/path"
  bool tls = false;     // trusting the system's authorities
};
// Reads "HOST:PORT", "unix:PATH", "http://HOST:PORT" or "https://HOST:PORT". INVALID_ARGUMENT says
// what is wrong.
absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& text);

// Has a thread of its own. A collector that does not answer costs spans, which are counted, and
// nothing else. Destruction sends what there is, if that takes a moment: at most some two seconds.
class SpanExporter {
 public:
  // `tracer` outlives it.
  SpanExporter(tracing::Tracer* tracer, SpanSource source, const OtlpEndpoint& endpoint);
  ~SpanExporter();

 private:
  void Run();
  void LogFailure(const grpc::Status& status) const;
  grpc::Status SendOnce(
      const opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest& request);
  // Again, later and later, while the collector is not there, or asks for it.
  grpc::Status Send(
      const opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest& request);

  tracing::Tracer* const tracer_;
  const SpanSource source_;
  const std::string address_;
  const std::unique_ptr<opentelemetry::proto::collector::trace::v1::TraceService::Stub> stub_;
  absl::Mutex mutex_;
  grpc::ClientContext* under_way_ ABSL_GUARDED_BY(mutex_) = nullptr;
  SteadyNotification ended_;
  std::thread thread_;
};

}  // namespace warpcall
