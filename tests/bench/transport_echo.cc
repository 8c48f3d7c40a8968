#include "tests/bench/transport_echo.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/transport/grpc_1_51/busy_poll.h"
#include "server/transport/grpc_1_51/pollers.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::bench {
namespace {

// Equals the value in server/transport/server.cc.
constexpr int kTcpReadChunkBytesMax = 1 << 20;

class RawEcho final
    : public v1::KernelService::WithRawCallbackMethod_Execute<v1::KernelService::Service> {
 public:
  explicit RawEcho(Pollers* pollers) : pollers_(*pollers) {}
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override {
    pollers_.Observe(2 * static_cast<int64_t>(request->Length()));
    const_cast<grpc::ByteBuffer*>(request)->Swap(response);  // not even a reference is counted
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  Pollers& pollers_;
};

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

}  // namespace

void ServeEcho(const EchoOptions& options) {
  // Waits for the network as warpcalld does.
  const bool tuned = options.kind == "echo";
  if (tuned) SetBusyPoll(BusyPollFor(static_cast<int>(std::thread::hardware_concurrency())));
  Pollers pollers(tuned ? Pollers::kFew : 0, NowNs);
  RawEcho raw(&pollers);
  ProtobufEcho protobuf;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  if (options.kind != "echo_defaults")
    builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kTcpReadChunkBytesMax);
  if (options.kind == "protobuf")
    builder.RegisterService(&protobuf);
  else
    builder.RegisterService(&raw);
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
  pollers.Begin();
  std::printf("echo: serving on %s\n", absl::StrJoin(served, ",").c_str());
  std::fflush(stdout);
  server->Wait();
  std::abort();  // nobody shuts it down
}

}  // namespace warpcall::bench
