#include "tests/bench/transport_echo.h"

#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::bench {
namespace {

// As server/transport/server.cc has it.
constexpr int kTcpReadChunkBytesMax = 1 << 20;

class RawEcho final
    : public v1::KernelService::WithRawCallbackMethod_Execute<v1::KernelService::Service> {
 public:
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override {
    const_cast<grpc::ByteBuffer*>(request)->Swap(response);  // not even a reference is counted
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class ProtobufEcho final : public v1::KernelService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const v1::ExecuteRequest* request,
                                    v1::ExecuteResponse* response) override {
    *response->mutable_outputs() = request->inputs();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

using QueueEcho = v1::KernelService::WithRawMethod_Execute<v1::KernelService::Service>;

// One call on a completion queue: asked for, answered, done, and replaced by the next.
class QueueCall {
 public:
  // Serves for good.
  static void Serve(QueueEcho* service, grpc::ServerCompletionQueue* queue) {
    constexpr int kCallsReady = 64;
    for (int i = 0; i < kCallsReady; ++i) new QueueCall(service, queue);
    void* tag;
    bool ok;
    while (queue->Next(&tag, &ok)) static_cast<QueueCall*>(tag)->Proceed(ok);
  }

 private:
  QueueCall(QueueEcho* service, grpc::ServerCompletionQueue* queue)
      : service_(service), queue_(queue), responder_(&context_) {
    service->RequestExecute(&context_, &message_, &responder_, queue, queue, this);
  }

  void Proceed(bool ok) {
    if (answered_ || !ok) {
      delete this;
      return;
    }
    new QueueCall(service_, queue_);
    answered_ = true;
    responder_.Finish(message_, grpc::Status::OK, this);
  }

  QueueEcho* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ByteBuffer message_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> responder_;
  bool answered_ = false;
};

void AddArguments(const EchoOptions& options, grpc::ServerBuilder* builder) {
  if (options.kind != "echo_defaults") {
    builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kTcpReadChunkBytesMax);
    return;
  }
  for (const absl::string_view argument :
       absl::StrSplit(options.arguments, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    int value;
    if (!absl::SimpleAtoi(parts.second, &value)) {
      std::fprintf(stderr, "%s is not NAME=INTEGER\n", std::string(argument).c_str());
      std::exit(2);
    }
    builder->AddChannelArgument(parts.first, value);
  }
}

}  // namespace

void ServeEcho(const EchoOptions& options) {
  RawEcho raw;
  ProtobufEcho protobuf;
  QueueEcho queue_echo;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  AddArguments(options, &builder);
  if (options.kind == "protobuf")
    builder.RegisterService(&protobuf);
  else if (options.kind == "echo_queues")
    builder.RegisterService(&queue_echo);
  else
    builder.RegisterService(&raw);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  const unsigned threads = options.kind == "echo_queues" ? std::thread::hardware_concurrency() : 0;
  for (unsigned i = 0; i < threads; ++i) queues.push_back(builder.AddCompletionQueue());
  std::vector<std::string> served = absl::StrSplit(options.addresses, ',');
  std::vector<int> ports(served.size(), 0);
  for (size_t i = 0; i < served.size(); ++i)
    builder.AddListeningPort(served[i], grpc::InsecureServerCredentials(), &ports[i]);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  for (size_t i = 0; i < served.size(); ++i) {
    if (server == nullptr || ports[i] == 0) {
      std::fprintf(stderr, "the echo cannot listen on %s\n", served[i].c_str());
      std::exit(1);
    }
    if (!absl::StartsWith(served[i], "unix:"))
      served[i] = absl::StrCat(served[i].substr(0, served[i].rfind(':')), ":", ports[i]);
  }
  std::printf("echo: serving on %s\n", absl::StrJoin(served, ",").c_str());
  std::fflush(stdout);
  std::vector<std::thread> serving;
  for (const auto& queue : queues)
    serving.emplace_back([&queue_echo, &queue] { QueueCall::Serve(&queue_echo, queue.get()); });
  server->Wait();
  std::abort();  // nobody shuts it down
}

}  // namespace warpcall::bench
