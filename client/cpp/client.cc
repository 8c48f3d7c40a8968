#include "warpcall/client.h"

#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/calls/benchmark.h"
#include "client/cpp/calls/borrowed.h"
#include "client/cpp/calls/execute.h"
#include "client/cpp/calls/graph.h"
#include "client/cpp/calls/push.h"
#include "client/cpp/calls/response_stream.h"
#include "client/cpp/calls/stream.h"
#include "client/cpp/calls/transfers.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/codec/inspect_codec.h"
#include "client/cpp/codec/resident_codec.h"
#include "client/cpp/codec/values.h"
#include "client/cpp/rpc/address.h"
#include "client/cpp/rpc/channel.h"
#include "client/cpp/rpc/connections.h"
#include "client/cpp/rpc/methods.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Used in place of a server's pushback: the call must not be retried.
constexpr int64_t kNeverAgain = -1;

// OK for "" too. gRPC ends the process over a header's value that is none.
absl::Status CheckTrace(const std::string& traceparent) {
  constexpr char kForm[] = "00-00000000000000000000000000000000-0000000000000000-00";
  bool fits = traceparent.empty() || traceparent.size() == sizeof(kForm) - 1;
  for (size_t i = 0; fits && i < traceparent.size(); ++i) {
    const char c = traceparent[i];
    fits = kForm[i] == '-' ? c == '-' : absl::ascii_isxdigit(c) && !absl::ascii_isupper(c);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("traceparent is \"", absl::CEscape(traceparent),
                                                 "\"; it must be of the form ", kForm));
}

// An older server, which does not know the graph, sees a kernel without a name.
absl::Status OfGraph(const absl::Status& status) {
  if (!absl::IsNotFound(status) || !absl::StartsWith(status.message(), "kernel \"\""))
    return status;
  return absl::UnimplementedError(
      "the server neither describes nor profiles graphs: it is older than this client; a newer "
      "warpcalld is needed");
}

std::vector<Tensor> TensorsOf(const GraphRequest& graph) {
  std::vector<Tensor> tensors;
  for (const GraphInput& input : graph.inputs) tensors.push_back(input.tensor);
  return tensors;
}

}  // namespace

const char* ServingStatusName(ServingStatus status) {
  switch (status) {
    case ServingStatus::kUnknown:
      return "UNKNOWN";
    case ServingStatus::kServing:
      return "SERVING";
    case ServingStatus::kNotServing:
      return "NOT_SERVING";
    case ServingStatus::kServiceUnknown:
      return "SERVICE_UNKNOWN";
  }
  return "UNKNOWN";
}

absl::Status CheckAddress(absl::string_view address) { return ParseAddress(address).status(); }

class Client::Impl {
 public:
  Impl(absl::string_view address, ClientOptions options)
      : connections_(std::string(address), std::move(options)),
        executor_(&connections_),
        transfers_(&connections_) {}

  Connections& connections() { return connections_; }
  const absl::Status& options_status() const { return connections_.options_status(); }
  Transfers& transfers() { return transfers_; }

  absl::StatusOr<Result> Execute(const Call& call) {
    RETURN_IF_ERROR(options_status());
    RETURN_IF_ERROR(CheckTrace(call.options.traceparent));
    const absl::Time start = absl::Now();
    const absl::Time deadline = connections_.Deadline(start, call.options.timeout);
    absl::StatusOr<Result> result =
        Restoring<Result>(call.inputs, TermsOf(call.options, deadline),
                          [&] { return executor_.Execute(call, deadline); });
    if (result.ok()) result->wall = absl::Now() - start;
    return result;
  }

  absl::StatusOr<GraphResponse> ExecuteGraph(const GraphRequest& request) {
    RETURN_IF_ERROR(options_status());
    RETURN_IF_ERROR(CheckTrace(request.traceparent));
    const absl::Time start = absl::Now();
    const CallTerms terms = GraphTerms(request, start);
    absl::StatusOr<GraphResponse> response = Restoring<GraphResponse>(
        TensorsOf(request), terms, [&] { return ExecuteGraphOnce(&connections_, request, terms); });
    if (response.ok()) response->wall = absl::Now() - start;
    return response;
  }

  absl::StatusOr<ProfileReport> Profile(const ProfileCall& call) {
    const CallTerms terms =
        TermsOf(call.call.options, connections_.Deadline(absl::Now(), call.call.options.timeout));
    const auto encode = [&](const auto& owner) { return EncodeProfile(call, owner); };
    ASSIGN_OR_RETURN(const Reply reply, CallWithInputs(kProfile, call.call.inputs, terms, encode));
    return DecodeProfile(reply.fragments);
  }

  absl::StatusOr<ProfileReport> ProfileGraph(const ProfileGraphCall& call) {
    const auto encode = [&](const auto& owner) { return EncodeProfileGraph(call, owner); };
    const auto reply = CallWithGraph(kProfile, call.graph, encode);
    if (!reply.ok()) return OfGraph(reply.status());
    return DecodeProfile(reply->fragments);
  }

  absl::StatusOr<Description> DescribeGraph(const GraphRequest& graph) {
    const auto encode = [&](const auto&) {
      return std::vector{OwnedPiece(EncodeDescribeGraph(graph))};
    };
    const auto reply = CallWithGraph(kDescribe, graph, encode);
    if (!reply.ok()) return OfGraph(reply.status());
    return DecodeDescribe(reply->fragments);
  }

  // From memory to memory.
  absl::StatusOr<Result> Stream(const Call& call) {
    RETURN_IF_ERROR(MemoryIo::Check(call));
    const absl::Time start = absl::Now();
    const absl::Time deadline = connections_.Deadline(start, call.options.timeout);
    absl::StatusOr<Result> result = Restoring<Result>(call.inputs, TermsOf(call.options, deadline),
                                                      [&] { return StreamOnce(call, deadline); });
    if (result.ok()) result->wall = absl::Now() - start;
    return result;
  }

  // Leaves outputs to `io`.
  absl::StatusOr<Result> Stream(const StreamCall& call, TensorIo* io, absl::Time deadline) {
    RETURN_IF_ERROR(options_status());
    RETURN_IF_ERROR(CheckTrace(call.options.traceparent));
    const absl::Time start = absl::Now();
    const CallTerms terms = TermsOf(call.options, deadline);
    ASSIGN_OR_RETURN(const auto session,
                     ExecuteStreamSession::Make(call, connections_.options().chunk_bytes, io));
    const Channel& channel = connections_.channel(connections_.Next());
    const auto attempt = [&] {
      Reply reply = channel.Stream(kExecuteStream, session.get(), terms);
      if (session->begun()) reply.pushback_ms = kNeverAgain;
      return reply;
    };
    int attempts = 0;
    RETURN_IF_ERROR(connections_.Retry(attempt, terms, &attempts).status);
    ASSIGN_OR_RETURN(Result result, session->TakeResult());
    result.attempts = attempts;
    result.wall = absl::Now() - start;
    return result;
  }

  absl::Status Benchmark(const BenchmarkCall& call, const BenchmarkWatch& watch,
                         BenchmarkReport* report) {
    RETURN_IF_ERROR(options_status());
    const CallTerms terms = {connections_.Deadline(absl::Now(), call.timeout), watch.cancellation};
    const std::string request = EncodeBenchmark(call);
    const auto add = [&](Fragments response) { return AddBenchmark(response, watch, report); };
    bool begun = false;
    const absl::Status status = ReadResponses({kBenchmarkStream, &request, terms, add}, &begun);
    if (begun || !(status.ok() || absl::IsUnimplemented(status))) return status;
    if (status.ok()) return BadResponse("the stream ended before the answer did");
    // No such method, or no implementation that takes the problem: then this says so, too.
    const Piece piece{{request.data(), request.size()}, nullptr};
    int attempts = 0;
    const Reply reply = connections_.Call(
        connections_.Next(), {kBenchmark, absl::MakeConstSpan(&piece, 1), terms}, &attempts);
    RETURN_IF_ERROR(reply.status);
    ASSIGN_OR_RETURN(*report, DecodeBenchmark(reply.fragments));
    return watch.progress == nullptr ? absl::OkStatus() : watch.progress(*report);
  }

  absl::StatusOr<PushVerdict> Push(const PushCall& call, const PushWatch& watch) {
    RETURN_IF_ERROR(options_status());
    const CallTerms terms = {connections_.Deadline(absl::Now(), call.timeout), watch.cancellation};
    const std::string request = EncodePush(call);
    PushEvents events(watch);
    const auto add = [&](Fragments response) { return events.Add(response); };
    bool begun = false;
    const absl::Status status = ReadResponses({kPush, &request, terms, add}, &begun);
    // gRPC's answer for a method that a server does not know.
    if (absl::IsUnimplemented(status) && status.message().empty())
      return absl::UnimplementedError(
          "the server has no Push: it is older than this client; a newer warpcalld is needed");
    RETURN_IF_ERROR(status);
    return events.TakeVerdict();
  }

  // By a method that answers a BenchmarkRequest at once.
  absl::StatusOr<BenchmarkReport> Measure(const char* method, const BenchmarkCall& call,
                                          Cancellation* cancellation = nullptr) {
    const std::string request = EncodeBenchmark(call);
    const Piece piece{{request.data(), request.size()}, nullptr};
    ASSIGN_OR_RETURN(const Reply reply, CallMethod(method, absl::MakeConstSpan(&piece, 1),
                                                   call.timeout, cancellation));
    return DecodeBenchmark(reply.fragments);
  }

  // A call that is never cut, on any connection, with retries.
  absl::StatusOr<Reply> CallMethod(const char* method, absl::Span<const Piece> message,
                                   absl::Duration timeout, Cancellation* cancellation = nullptr) {
    RETURN_IF_ERROR(options_status());
    int attempts = 0;
    const CallTerms terms = {connections_.Deadline(absl::Now(), timeout), cancellation};
    Reply reply = connections_.Call(connections_.Next(), {method, message, terms}, &attempts);
    RETURN_IF_ERROR(reply.status);
    return reply;
  }

 private:
  CallTerms GraphTerms(const GraphRequest& graph, absl::Time start) const {
    return {connections_.Deadline(start, graph.timeout), graph.cancellation, graph.traceparent};
  }

  // Makes a message. Whoever reads borrowed bytes holds `borrowed_owner`.
  using Encode =
      absl::FunctionRef<std::vector<Piece>(const std::shared_ptr<const void>& borrowed_owner)>;

  // A call that is never cut, with retries, whose message has `inputs`. On return, borrowed bytes
  // are no longer read.
  absl::StatusOr<Reply> CallWithInputs(const char* method, absl::Span<const Tensor> inputs,
                                       const CallTerms& terms, Encode encode) {
    RETURN_IF_ERROR(options_status());
    RETURN_IF_ERROR(CheckTrace(terms.traceparent));
    return Restoring<Reply>(inputs, terms, [&]() -> absl::StatusOr<Reply> {
      BorrowedBytes borrowed;
      std::vector<Piece> message = encode(borrowed.owner());
      int attempts = 0;
      Reply reply = connections_.Call(connections_.Next(), {method, message, terms}, &attempts);
      message.clear();
      borrowed.WaitUntilReleased();
      RETURN_IF_ERROR(reply.status);
      return reply;
    });
  }

  absl::StatusOr<Reply> CallWithGraph(const char* method, const GraphRequest& graph,
                                      Encode encode) {
    return CallWithInputs(method, TensorsOf(graph), GraphTerms(graph, absl::Now()), encode);
  }

  // Returns what `make` returns, a call with `inputs`. If the server has lost some, puts them again
  // and has it made a second time.
  template <typename Response>
  absl::StatusOr<Response> Restoring(absl::Span<const Tensor> inputs, const CallTerms& terms,
                                     absl::FunctionRef<absl::StatusOr<Response>()> make) {
    absl::StatusOr<Response> result = make();
    if (result.ok()) return result;
    RETURN_IF_ERROR(transfers_.PutAgain(inputs, result.status(), terms));
    result = make();
    return result.ok() ? std::move(result) : Transfers::LostAgain(result.status());
  }
  // A request that a stream of responses answers.
  struct StreamedCall {
    const char* method;
    const std::string* request;
    const CallTerms& terms;
    ResponseStream::HandleResponse handle;
  };
  // Retries until a response came, which sets *begun.
  absl::Status ReadResponses(const StreamedCall& call, bool* begun) {
    const Channel& channel = connections_.channel(connections_.Next());
    const auto attempt = [&] {
      ResponseStream stream(call.request, call.handle);
      Reply reply = channel.Stream(call.method, &stream, call.terms);
      *begun = stream.begun();
      if (*begun) reply.pushback_ms = kNeverAgain;
      return reply;
    };
    int attempts = 0;
    return connections_.Retry(attempt, call.terms, &attempts).status;
  }

  absl::StatusOr<Result> StreamOnce(const Call& call, absl::Time deadline) {
    StreamCall stream{
        .kernel = call.kernel, .attributes = call.attributes, .options = call.options};
    for (const Tensor& input : call.inputs) {
      stream.inputs.push_back({input.data_type(), {input.shape().begin(), input.shape().end()}});
      stream.handles.push_back(input.handle());
    }
    MemoryIo io(call);
    absl::StatusOr<Result> result = Stream(stream, &io, deadline);
    io.WaitUntilReleased();
    if (result.ok() && !call.options.keep_outputs) result->outputs = io.ReleaseOutputs();
    return result;
  }

  Connections connections_;
  Executor executor_;
  Transfers transfers_;
};

Client::Client(absl::string_view address, ClientOptions options)
    : impl_(std::make_unique<Impl>(address, std::move(options))) {}

Client::~Client() = default;

absl::StatusOr<Result> Client::Execute(const Call& call) { return impl_->Execute(call); }

absl::StatusOr<Result> Client::ExecuteStream(const StreamCall& call) {
  if ((call.read == nullptr && !call.inputs.empty()) || call.write == nullptr)
    return absl::InvalidArgumentError("a StreamCall needs both `read` and `write`");
  CallbackIo io(call);
  return impl_->Stream(call, &io, impl_->connections().Deadline(absl::Now(), call.options.timeout));
}

absl::StatusOr<Result> Client::ExecuteStream(const Call& call) { return impl_->Stream(call); }

absl::StatusOr<GraphResponse> Client::ExecuteGraph(const GraphRequest& request) {
  return impl_->ExecuteGraph(request);
}

absl::StatusOr<Resident> Client::Put(const Tensor& tensor, const PutOptions& options) {
  RETURN_IF_ERROR(impl_->options_status());
  return impl_->transfers().Put(tensor, options);
}

absl::StatusOr<Tensor> Client::Get(const std::string& handle, absl::Duration timeout) {
  RETURN_IF_ERROR(impl_->options_status());
  return impl_->transfers().Get(handle, timeout);
}

absl::StatusOr<FreeReport> Client::Free(absl::Span<const std::string> handles,
                                        absl::Duration timeout) {
  const std::string request = EncodeFree(handles);
  const Piece piece{{request.data(), request.size()}, nullptr};
  ASSIGN_OR_RETURN(const Reply reply,
                   impl_->CallMethod(kFree, absl::MakeConstSpan(&piece, 1), timeout));
  return DecodeFree(reply.fragments);
}

absl::StatusOr<std::vector<TensorInfo>> Client::ListTensors(absl::Duration timeout) {
  ASSIGN_OR_RETURN(const Reply reply, impl_->CallMethod(kListTensors, {}, timeout));
  return DecodeTensors(reply.fragments);
}

absl::StatusOr<Result> Client::Identity(Tensor x, CallOptions options) {
  return Execute({.kernel = "identity", .inputs = {std::move(x)}, .options = std::move(options)});
}

absl::StatusOr<Result> Client::Gelu(Tensor x, absl::string_view approximate, CallOptions options) {
  return Execute({.kernel = "gelu",
                  .inputs = {std::move(x)},
                  .attributes = {{"approximate", std::string(approximate)}},
                  .options = std::move(options)});
}

absl::StatusOr<Result> Client::Softmax(Tensor x, int64_t axis, CallOptions options) {
  return Execute({.kernel = "softmax",
                  .inputs = {std::move(x)},
                  .attributes = {{"axis", axis}},
                  .options = std::move(options)});
}

absl::StatusOr<Result> Client::Matmul(Tensor a, Tensor b, const MatmulAttributes& attributes,
                                      CallOptions options) {
  return Execute({.kernel = "matmul",
                  .inputs = {std::move(a), std::move(b)},
                  .attributes = {{"transpose_a", attributes.transpose_a},
                                 {"transpose_b", attributes.transpose_b},
                                 {"precision", attributes.precision}},
                  .options = std::move(options)});
}

absl::StatusOr<std::vector<KernelInfo>> Client::ListKernels(absl::Duration timeout) {
  ASSIGN_OR_RETURN(const Reply reply, impl_->CallMethod(kListKernels, {}, timeout));
  return DecodeKernels(reply.fragments);
}

absl::StatusOr<std::vector<DeviceInfo>> Client::ListDevices(absl::Duration timeout) {
  ASSIGN_OR_RETURN(const Reply reply, impl_->CallMethod(kListDevices, {}, timeout));
  return DecodeDevices(reply.fragments);
}

absl::StatusOr<ServerDescription> Client::ServerInfo(absl::Duration timeout) {
  ASSIGN_OR_RETURN(const Reply reply, impl_->CallMethod(kServerInfo, {}, timeout));
  return DecodeServerInfo(reply.fragments);
}

absl::StatusOr<BenchmarkReport> Client::Benchmark(const BenchmarkCall& call) {
  return impl_->Measure(kBenchmark, call);
}

absl::StatusOr<BenchmarkReport> Client::Tune(const BenchmarkCall& call,
                                             Cancellation* cancellation) {
  return impl_->Measure(kTune, call, cancellation);
}

absl::Status Client::BenchmarkStream(const BenchmarkCall& call, const BenchmarkWatch& watch,
                                     BenchmarkReport* report) {
  return impl_->Benchmark(call, watch, report);
}

absl::StatusOr<ProfileReport> Client::Profile(const ProfileCall& call) {
  return impl_->Profile(call);
}

absl::StatusOr<ProfileReport> Client::ProfileGraph(const ProfileGraphCall& call) {
  return impl_->ProfileGraph(call);
}

absl::StatusOr<Description> Client::Describe(const DescribeCall& call) {
  const std::string request = EncodeDescribe(call);
  const Piece piece{{request.data(), request.size()}, nullptr};
  ASSIGN_OR_RETURN(const Reply reply,
                   impl_->CallMethod(kDescribe, absl::MakeConstSpan(&piece, 1), call.timeout));
  return DecodeDescribe(reply.fragments);
}

absl::StatusOr<Description> Client::DescribeGraph(const GraphRequest& graph) {
  return impl_->DescribeGraph(graph);
}

absl::StatusOr<PushVerdict> Client::Push(const PushCall& call, const PushWatch& watch) {
  return impl_->Push(call, watch);
}

absl::StatusOr<ServingStatus> Client::Health(absl::string_view service, absl::Duration timeout) {
  RETURN_IF_ERROR(impl_->options_status());
  const std::string request = EncodeHealthRequest(service);
  const Piece piece{{request.data(), request.size()}, nullptr};
  Connections& connections = impl_->connections();
  const Reply reply = connections.channel(connections.Next())
                          .Unary(kHealthCheck, absl::MakeConstSpan(&piece, 1),
                                 {connections.Deadline(absl::Now(), timeout)});
  RETURN_IF_ERROR(reply.status);
  return DecodeHealthResponse(reply.fragments);
}

}  // namespace warpcall::client
