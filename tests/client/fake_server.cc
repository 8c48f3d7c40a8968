#include "tests/client/fake_server.h"

#include <google/protobuf/text_format.h>
#include <grpc/grpc.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "tests/held_port.h"

namespace warpcall::testing {
namespace {

constexpr char kKernel[] = R"(
  name: "gelu" summary: "a kernel" input_names: "x"
  attributes { name: "approximate" summary: "an attribute" default_value { string_value: "tanh" }
               allowed_values: "tanh" allowed_values: "none" }
  attributes { name: "axis" summary: "an attribute" default_value { int_value: -1 } }
  attributes { name: "transpose" summary: "an attribute" default_value { bool_value: false } }
  attributes { name: "scale" summary: "an attribute" default_value { double_value: 0.5 } }
  attributes { name: "text" summary: "an attribute" default_value { string_value: "" }
               required: true }
  implementations { name: "simd_fused" family: "cpu" device_kind: "cpu" summary: "a row"
                    data_types: DATA_TYPE_FLOAT32 data_types: DATA_TYPE_BFLOAT16 }
  implementations { name: "failed" family: "library" device_kind: "cpu"
                    unavailable: "failed its self-test: crashed with SIGILL" }
)";
constexpr char kDevice[] = R"(
  name: "cpu" kind: "cpu" description: "a processor" memory_bytes: 17179869184 multiprocessors: 2
  l2_bytes: 2097152 shared_memory_per_block_bytes: 65536 compute_capability: "9.0" healthy: true
  measured_bandwidth_bytes_per_second: 2.5e10
)";
constexpr char kTimings[] = R"(
  timing { queue_ns: 1 copy_in_ns: 2 h2d_ns: 3 kernel_ns: 4000 d2h_ns: 5 total_ns: 6000 }
  launch { bytes_moved: 8000 flops: 400 theoretical_occupancy: 0.75 waves: 1.5 gpu_kernels: 1 }
)";

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

grpc::Status Finish(const FakeAnswer& answer, grpc::ServerContext* context) {
  if (answer.pushback.has_value())
    context->AddTrailingMetadata("grpc-retry-pushback-ms", *answer.pushback);
  if (!answer.lost_handles.empty())
    context->AddTrailingMetadata("warpcall-lost-handles", answer.lost_handles);
  if (!answer.request_id.empty())
    context->AddTrailingMetadata("warpcall-request-id", answer.request_id);
  return ToGrpc(answer.status);
}

class Service final : public v1::KernelService::Service {
 public:
  explicit Service(ExecuteHandler handler) : handler_(std::move(handler)) {}

  grpc::Status Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                       v1::ExecuteResponse* response) override {
    executes_.fetch_add(1);
    NoteTimeout(*context);
    Note(*context);
    return Finish(handler_(*request, response), context);
  }

  grpc::Status ExecuteGraph(grpc::ServerContext* context, const v1::ExecuteGraphRequest* request,
                            v1::ExecuteGraphResponse* response) override {
    NoteTimeout(*context);
    NoteTrace(*context);
    if (graph_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, ""};
    return Finish(graph_handler_(*request, response), context);
  }

  grpc::Status Put(grpc::ServerContext* context, grpc::ServerReader<v1::PutRequest>* reader,
                   v1::PutResponse* response) override {
    if (put_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, "no Put"};
    std::vector<v1::PutRequest> messages;
    v1::PutRequest message;
    while (reader->Read(&message)) messages.push_back(message);
    return Finish(put_handler_(messages, response), context);
  }

  grpc::Status Benchmark(grpc::ServerContext* context, const v1::BenchmarkRequest* request,
                         v1::BenchmarkResponse* response) override {
    NoteTimeout(*context);
    if (benchmark_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, "no Benchmark"};
    return Finish(benchmark_handler_(*request, response), context);
  }

  grpc::Status BenchmarkStream(grpc::ServerContext* context, const v1::BenchmarkRequest* request,
                               BenchmarkWriter* writer) override {
    if (benchmark_stream_handler_ == nullptr)
      return {grpc::StatusCode::UNIMPLEMENTED, "no BenchmarkStream"};
    const auto cancelled = [context] { return context->IsCancelled(); };
    const auto queued = [context, writer](int ahead) {
      context->AddInitialMetadata("warpcall-queue-position", absl::StrCat(ahead));
      writer->SendInitialMetadata();
    };
    return Finish(benchmark_stream_handler_({*request, writer, cancelled, queued}), context);
  }

  grpc::Status Tune(grpc::ServerContext* context, const v1::BenchmarkRequest* request,
                    v1::BenchmarkResponse* response) override {
    NoteTimeout(*context);
    if (tune_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, "no Tune"};
    return Finish(tune_handler_(*request, response), context);
  }

  grpc::Status Profile(grpc::ServerContext* context, const v1::ProfileRequest* request,
                       v1::ProfileResponse* response) override {
    NoteTimeout(*context);
    if (profile_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, "no Profile"};
    return Finish(profile_handler_(*request, response), context);
  }

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override {
    NoteTimeout(*context);
    if (describe_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, "no Describe"};
    return Finish(describe_handler_(*request, response), context);
  }

  grpc::Status Push(grpc::ServerContext* context, const v1::PushRequest* request,
                    grpc::ServerWriter<v1::PushEvent>* writer) override {
    if (push_handler_ == nullptr) return {grpc::StatusCode::UNIMPLEMENTED, ""};
    const auto cancelled = [context] { return context->IsCancelled(); };
    return Finish(push_handler_({*request, writer, cancelled}), context);
  }

  grpc::Status ExecuteStream(grpc::ServerContext* context, ServerStream* stream) override {
    execute_streams_.fetch_add(1);
    NoteTrace(*context);
    return stream_handler_ == nullptr ? grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no streams")
                                      : ToGrpc(stream_handler_(stream));
  }

  grpc::Status ListKernels(grpc::ServerContext* context, const v1::ListKernelsRequest*,
                           v1::ListKernelsResponse* response) override {
    NoteTimeout(*context);
    list_kernels_.fetch_add(1);
    if (kernels_handler_ != nullptr) return ToGrpc(kernels_handler_(response));
    Merge(kKernel, response->add_kernels());
    return grpc::Status::OK;
  }

  grpc::Status ListDevices(grpc::ServerContext* context, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    NoteTimeout(*context);
    Merge(kDevice, response->add_devices());
    return grpc::Status::OK;
  }

  grpc::Status ServerInfo(grpc::ServerContext* context, const v1::ServerInfoRequest*,
                          v1::ServerInfoResponse* response) override {
    NoteTimeout(*context);
    return info_handler_ == nullptr ? grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no ServerInfo")
                                    : ToGrpc(info_handler_(response));
  }

  void set_info_handler(ServerInfoHandler handler) { info_handler_ = std::move(handler); }
  void set_kernels_handler(ListKernelsHandler handler) { kernels_handler_ = std::move(handler); }
  void set_stream_handler(StreamHandler handler) { stream_handler_ = std::move(handler); }
  void set_graph_handler(GraphHandler handler) { graph_handler_ = std::move(handler); }
  void set_put_handler(PutHandler handler) { put_handler_ = std::move(handler); }
  void set_benchmark_handler(BenchmarkHandler handler) { benchmark_handler_ = std::move(handler); }
  void set_benchmark_stream_handler(BenchmarkStreamHandler handler) {
    benchmark_stream_handler_ = std::move(handler);
  }
  void set_profile_handler(ProfileHandler handler) { profile_handler_ = std::move(handler); }
  void set_push_handler(PushHandler handler) { push_handler_ = std::move(handler); }
  void set_tune_handler(BenchmarkHandler handler) { tune_handler_ = std::move(handler); }
  void set_describe_handler(DescribeHandler handler) { describe_handler_ = std::move(handler); }
  int executes() const { return executes_.load(); }
  int list_kernels() const { return list_kernels_.load(); }
  int execute_streams() const { return execute_streams_.load(); }
  std::set<std::string> peers() const {
    absl::MutexLock lock(&mutex_);
    return peers_;
  }
  std::multiset<std::string> traces() const {
    absl::MutexLock lock(&mutex_);
    return traces_;
  }
  std::vector<absl::Duration> timeouts() const {
    absl::MutexLock lock(&mutex_);
    return timeouts_;
  }

 private:
  void NoteTimeout(const grpc::ServerContext& context) {
    absl::MutexLock lock(&mutex_);
    timeouts_.push_back(absl::FromChrono(context.deadline()) - absl::Now());
  }

  void Note(const grpc::ServerContext& context) {
    NoteTrace(context);
    absl::MutexLock lock(&mutex_);
    peers_.insert(context.peer());
  }

  void NoteTrace(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find("traceparent");
    if (found == context.client_metadata().end()) return;
    absl::MutexLock lock(&mutex_);
    traces_.emplace(found->second.data(), found->second.size());
  }

  const ExecuteHandler handler_;
  ListKernelsHandler kernels_handler_;
  ServerInfoHandler info_handler_;
  StreamHandler stream_handler_;
  GraphHandler graph_handler_;
  PutHandler put_handler_;
  BenchmarkHandler benchmark_handler_;
  BenchmarkStreamHandler benchmark_stream_handler_;
  ProfileHandler profile_handler_;
  BenchmarkHandler tune_handler_;
  DescribeHandler describe_handler_;
  PushHandler push_handler_;
  std::atomic<int> executes_{0};
  std::atomic<int> list_kernels_{0};
  std::atomic<int> execute_streams_{0};
  mutable absl::Mutex mutex_;
  std::set<std::string> peers_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Duration> timeouts_ ABSL_GUARDED_BY(mutex_);
  std::multiset<std::string> traces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

struct FakeServer::Impl {
  explicit Impl(ExecuteHandler handler) : service(std::move(handler)) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<HeldPort> port;  // held after the server is stopped
};

FakeServer::FakeServer(ExecuteHandler handler, const std::string& address)
    : impl_(std::make_unique<Impl>(std::move(handler))) {
  // Else gRPC ends with the last server and channel, and now and then waits 10 s for its poller
  // then.
  [[maybe_unused]] static const bool stays = (grpc_init(), true);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl_->service);
  impl_->server = builder.BuildAndStart();
  address_ = absl::StartsWith(address, "unix:") ? address : absl::StrCat("127.0.0.1:", port);
}

FakeServer::~FakeServer() { Stop(); }

void FakeServer::SetServing(bool serving) {
  impl_->server->GetHealthCheckService()->SetServingStatus(serving);
}

void FakeServer::AnswerListKernels(ListKernelsHandler handler) {
  impl_->service.set_kernels_handler(std::move(handler));
}

void FakeServer::AnswerServerInfo(ServerInfoHandler handler) {
  impl_->service.set_info_handler(std::move(handler));
}

void FakeServer::AnswerExecuteStream(StreamHandler handler) {
  impl_->service.set_stream_handler(std::move(handler));
}

void FakeServer::AnswerExecuteGraph(GraphHandler handler) {
  impl_->service.set_graph_handler(std::move(handler));
}

void FakeServer::AnswerPut(PutHandler handler) {
  impl_->service.set_put_handler(std::move(handler));
}

void FakeServer::AnswerBenchmark(BenchmarkHandler handler) {
  impl_->service.set_benchmark_handler(std::move(handler));
}

void FakeServer::AnswerBenchmarkStream(BenchmarkStreamHandler handler) {
  impl_->service.set_benchmark_stream_handler(std::move(handler));
}

void FakeServer::AnswerProfile(ProfileHandler handler) {
  impl_->service.set_profile_handler(std::move(handler));
}

void FakeServer::AnswerTune(BenchmarkHandler handler) {
  impl_->service.set_tune_handler(std::move(handler));
}

void FakeServer::AnswerDescribe(DescribeHandler handler) {
  impl_->service.set_describe_handler(std::move(handler));
}

void FakeServer::AnswerPush(PushHandler handler) {
  impl_->service.set_push_handler(std::move(handler));
}

int FakeServer::executes() const { return impl_->service.executes(); }

int FakeServer::list_kernels() const { return impl_->service.list_kernels(); }

int FakeServer::execute_streams() const { return impl_->service.execute_streams(); }

std::set<std::string> FakeServer::peers() const { return impl_->service.peers(); }

std::multiset<std::string> FakeServer::traces() const { return impl_->service.traces(); }

std::vector<absl::Duration> FakeServer::timeouts() const { return impl_->service.timeouts(); }

void FakeServer::Stop() {
  impl_->server->Shutdown();
  if (impl_->port == nullptr && !absl::StartsWith(address_, "unix:"))
    impl_->port = std::make_unique<HeldPort>(address_);
}

FakeAnswer EchoInputs(const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
  *response->mutable_outputs() = request.inputs();
  response->set_implementation(request.implementation().empty() ? "chosen"
                                                                : request.implementation());
  response->set_device(request.device().empty() ? "cpu" : request.device());
  response->set_request_id(request.request_id());
  Merge(kTimings, response);
  return {};
}

FakeAnswer EchoGraph(const v1::ExecuteGraphRequest& request, v1::ExecuteGraphResponse* response) {
  std::map<std::string, const v1::Tensor*> tensors;
  for (const v1::GraphInput& input : request.inputs()) tensors[input.name()] = &input.tensor();
  for (const v1::GraphStep& step : request.steps()) {
    tensors[step.name()] = tensors[step.inputs(0)];
    v1::GraphStepResult* result = response->add_steps();
    result->set_name(step.name());
    result->set_implementation(step.implementation().empty() ? "chosen" : step.implementation());
    if (request.step_times()) result->set_kernel_ns(1500);
    Merge("bytes_moved: 8000 flops: 400 variant: \"fast\"", result->mutable_launch());
  }
  for (const v1::GraphOutput& output : request.outputs()) {
    v1::Tensor* tensor = response->add_outputs();
    *tensor = *tensors[output.name()];
    if (!output.keep()) continue;
    tensor->clear_data();
    tensor->set_handle(absl::StrCat("kept-", output.name()));
  }
  response->set_device(request.device().empty() ? "cpu" : request.device());
  response->set_request_id(request.request_id().empty() ? "made" : request.request_id());
  Merge(
      "timing { queue_ns: 1 copy_in_ns: 2 h2d_ns: 3 kernel_ns: 4000 d2h_ns: 5 total_ns: 6000 } "
      "resident_bytes: 24 intermediate_bytes: 4096 replayed: true",
      response);
  return {};
}

absl::Status EchoStream(ServerStream* stream) {
  v1::ExecuteStreamRequest request;
  if (!stream->Read(&request) || !request.has_header())
    return absl::InvalidArgumentError("no header");
  v1::ExecuteStreamResponse header, end;
  *header.mutable_header()->mutable_outputs() = request.header().inputs();
  EchoInputs(request.header(), end.mutable_done());
  stream->Write(header);
  while (stream->Read(&request)) {
    v1::ExecuteStreamResponse chunk;
    *chunk.mutable_chunk() = std::move(*request.mutable_chunk());
    stream->Write(chunk);
  }
  stream->Write(end);
  return absl::OkStatus();
}

void Merge(const std::string& text, google::protobuf::Message* message) {
  if (!google::protobuf::TextFormat::MergeFromString(text, message)) std::abort();
}

std::string Text(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(message, &text);
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

}  // namespace warpcall::testing
