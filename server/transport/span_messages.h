// Traced requests as OpenTelemetry's messages.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kernels/registry.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "server/engine/engine.h"
#include "server/tracing/tracer.h"

namespace warpcall {

// The sender of the spans, and the objects that the numbers in records refer to.
struct SpanSource {
  const Registry* registry;
  const Engine* engine;
  std::string version;
  std::string hostname;
};

// Each request's span, of kind server, named and described as
// https://opentelemetry.io/docs/specs/semconv/rpc/grpc/ says, and below it what happened one after
// the other: receive, queue, copy_in (on the host), prepare, h2d, kernel, copy_out (to the host),
// reply. A stream's windows have those below its span, each its own. The device's clock tells how
// long its phases took, and the host's when the last was over: there they end. Where rounds overlap
// each phase begins with the device's work.
// `unix_ns` is what the wall clock said when MonotonicNs said 0.
opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest ToSpanMessages(
    absl::Span<const tracing::Record> records, const SpanSource& source, int64_t unix_ns);

}  // namespace warpcall
