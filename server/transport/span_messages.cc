#include "server/transport/span_messages.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/graph/step_graph.h"
#include "server/transport/status.h"

namespace warpcall {
namespace {

namespace otlp = opentelemetry::proto;

// Returns the service that has the method.
absl::string_view ServiceOf(absl::string_view method) {
  return absl::StartsWith(method, "Model") ? "inference.GRPCInferenceService"
                                           : "warpcall.v1.KernelService";
}

template <typename Id>
std::string Bytes(const Id& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}

template <typename Message>
otlp::common::v1::AnyValue* Attribute(Message* message, const char* key) {
  otlp::common::v1::KeyValue* pair = message->add_attributes();
  pair->set_key(key);
  return pair->mutable_value();
}

// As the conventions for servers want it: what the caller did wrong is no error of the server.
bool IsServersFault(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

// Turns records into spans of one message.
class Writer {
 public:
  Writer(const SpanSource& source, int64_t unix_ns, otlp::trace::v1::ScopeSpans* spans)
      : source_(source), unix_ns_(unix_ns), spans_(spans) {}

  void Write(const tracing::Record& record) {
    if (!record.is_window) WriteRequest(record);
    if (record.trace.ran && record.trace.device_done_ns != 0) WritePhases(record);
  }

 private:
  otlp::trace::v1::Span* Add(const tracing::Record& record, const char* name, int64_t begin_ns,
                             int64_t end_ns) {
    otlp::trace::v1::Span* span = spans_->add_spans();
    span->set_trace_id(Bytes(record.span.trace_id));
    span->set_name(name);
    span->set_kind(otlp::trace::v1::Span::SPAN_KIND_INTERNAL);
    span->set_start_time_unix_nano(static_cast<uint64_t>(unix_ns_ + begin_ns));
    span->set_end_time_unix_nano(static_cast<uint64_t>(unix_ns_ + std::max(begin_ns, end_ns)));
    span->set_flags(1);  // sampled
    return span;
  }

  void WriteRequest(const tracing::Record& record) {
    const RequestTrace& trace = record.trace;
    const std::string name = absl::StrCat(ServiceOf(record.method), "/", record.method);
    otlp::trace::v1::Span* span =
        Add(record, name.c_str(), record.begin_ns, record.begin_ns + trace.total_ns);
    span->set_kind(otlp::trace::v1::Span::SPAN_KIND_SERVER);
    span->set_span_id(Bytes(record.span.span_id));
    if (record.span.parent_id.has_value()) span->set_parent_span_id(Bytes(*record.span.parent_id));
    Attribute(span, "rpc.system")->set_string_value("grpc");
    Attribute(span, "rpc.service")->set_string_value(std::string(ServiceOf(record.method)));
    Attribute(span, "rpc.method")->set_string_value(std::string(record.method));
    Attribute(span, "rpc.grpc.status_code")->set_int_value(static_cast<int>(trace.code));
    Attribute(span, "warpcall.request_id")->set_string_value(record.request_id);
    DescribeChoice(trace, span);
    if (!IsServersFault(trace.code)) return;
    span->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
    span->mutable_status()->set_message(record.error);
  }

  void DescribeChoice(const RequestTrace& trace, otlp::trace::v1::Span* span) {
    if (trace.kernel < 0) return;
    const Kernel& kernel = source_.registry->kernels()[static_cast<size_t>(trace.kernel)];
    Attribute(span, "warpcall.kernel")->set_string_value(kernel.op->name);
    Attribute(span, "warpcall.data_type")->set_string_value(DataTypeName(trace.data_type));
    if (trace.row < 0) return;
    DescribeRow(source_.registry->rows()[static_cast<size_t>(trace.row)], span);
    Attribute(span, "warpcall.device")
        ->set_string_value(source_.engine->device(trace.device).properties().name);
  }

  static void DescribeRow(const Row& row, otlp::trace::v1::Span* span) {
    Attribute(span, "warpcall.implementation")
        ->set_string_value(FamilyName(row.implementation.family));
    Attribute(span, "warpcall.variant")->set_string_value(row.implementation.name);
  }

  // One phase of a request or window.
  otlp::trace::v1::Span* Phase(const tracing::Record& record, const char* name, int64_t begin_ns,
                               int64_t end_ns) {
    otlp::trace::v1::Span* span = Add(record, name, begin_ns, end_ns);
    span->set_span_id(Bytes(tracing::NewSpanId()));
    span->set_parent_span_id(Bytes(record.span.span_id));
    return span;
  }

  void WritePhases(const tracing::Record& record) {
    const RequestTrace& trace = record.trace;
    const int64_t queued_ns = trace.queue_began_ns + trace.queue_ns;
    const int64_t copied_ns = queued_ns + trace.copy_in_ns;
    const int64_t done_ns = trace.device_done_ns;
    const int64_t began_ns = std::max(copied_ns, done_ns - trace.device_ns);
    if (!record.is_window) Phase(record, "receive", record.begin_ns, trace.queue_began_ns);
    Phase(record, "queue", trace.queue_began_ns, queued_ns);
    Phase(record, "copy_in", queued_ns, copied_ns);
    Phase(record, "prepare", copied_ns, began_ns);
    const bool in_turn = trace.h2d_ns + trace.kernel_ns + trace.d2h_ns <= done_ns - began_ns;
    const int64_t output_ns = in_turn ? done_ns - trace.d2h_ns : began_ns;
    const int64_t kernel_ns = in_turn ? output_ns - trace.kernel_ns : began_ns;
    const int64_t input_ns = in_turn ? kernel_ns - trace.h2d_ns : began_ns;
    const auto on_device = [&](const char* name, int64_t begin_ns, int64_t took_ns) {
      Phase(record, name, begin_ns, std::min(begin_ns + took_ns, done_ns));
    };
    on_device("h2d", input_ns, trace.h2d_ns);
    on_device("kernel", kernel_ns, trace.kernel_ns);
    if (trace.graph != nullptr) WriteSteps(record, kernel_ns, done_ns);
    on_device("copy_out", output_ns, trace.d2h_ns);
    if (!record.is_window) Phase(record, "reply", done_ns, record.begin_ns + trace.total_ns);
  }

  // The steps of a graph that timed them, one after the other.
  void WriteSteps(const tracing::Record& record, int64_t begin_ns, int64_t end_ns) {
    const GraphRun& run = *record.trace.graph;
    for (size_t i = 0; i < run.step_ns.size() && i < run.names.size(); ++i) {
      const Step& step = run.graph->steps()[i];
      const int64_t step_end_ns = std::min(begin_ns + run.step_ns[i], end_ns);
      otlp::trace::v1::Span* span =
          Phase(record, absl::StrCat("step ", run.names[i]).c_str(), begin_ns, step_end_ns);
      Attribute(span, "warpcall.kernel")->set_string_value(step.op->name);
      DescribeRow(*step.row, span);
      begin_ns = step_end_ns;
    }
  }

  const SpanSource& source_;
  const int64_t unix_ns_;
  otlp::trace::v1::ScopeSpans* const spans_;
};

}  // namespace

otlp::collector::trace::v1::ExportTraceServiceRequest ToSpanMessages(
    absl::Span<const tracing::Record> records, const SpanSource& source, int64_t unix_ns) {
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  otlp::trace::v1::ResourceSpans* resource = request.add_resource_spans();
  Attribute(resource->mutable_resource(), "service.name")->set_string_value("warpcalld");
  Attribute(resource->mutable_resource(), "service.version")->set_string_value(source.version);
  Attribute(resource->mutable_resource(), "host.name")->set_string_value(source.hostname);
  otlp::trace::v1::ScopeSpans* spans = resource->add_scope_spans();
  spans->mutable_scope()->set_name("warpcall");
  spans->mutable_scope()->set_version(source.version);
  Writer writer(source, unix_ns, spans);
  for (const tracing::Record& record : records) writer.Write(record);
  return request;
}

}  // namespace warpcall
