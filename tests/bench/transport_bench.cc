// What the data path costs against gRPC itself: an echo of a ByteBuffer (nothing but gRPC),
// warpcalld's identity, and an echo through protobuf `bytes` (what generated code makes of it),
// side by side in one run. Each server is a process of its own; the four take turns, so that a
// machine whose speed drifts hits all alike.
//
//   transport_bench [MIB...]       default 16; fractions work (0.00390625 is 4 KiB)
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "proto/wire/tensor_split.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

constexpr char kMethod[] = "/warpcall.v1.KernelService/Execute";
constexpr int kRounds = 8;
constexpr double kSecondsPerRound = 0.35;
constexpr int kCallsPerRoundMin = 3;

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

class RawEcho final : public grpc::CallbackGenericService {
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (ok)
        StartWriteAndFinish(&message_, {}, grpc::Status::OK);
      else
        Finish(grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer message_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor;
  }
};

class ProtoEcho final : public v1::KernelService::CallbackService {
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const v1::ExecuteRequest* request,
                                    v1::ExecuteResponse* response) override {
    *response->mutable_outputs() = request->inputs();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// Runs in the child: serves until the process is ended.
[[noreturn]] void ServeEcho(const std::string& kind) {
  RawEcho raw;
  ProtoEcho proto;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  if (kind == "raw")
    builder.RegisterCallbackGenericService(&raw);
  else
    builder.RegisterService(&proto);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::printf("127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  std::abort();
}

// One contender: a call returns the bytes of its response.
struct Contender {
  std::string name;
  std::function<size_t()> call;
  std::vector<double> seconds;
};

std::function<size_t()> RawCaller(const std::string& address, size_t bytes) {
  auto channel = Connect(address);
  auto data = std::make_shared<std::string>(bytes, 'x');
  for (size_t i = 0; i < bytes; ++i) (*data)[i] = static_cast<char>(i * 31 % 63);
  std::string header = Request("identity", {}).SerializeAsString();
  const int64_t shape[] = {static_cast<int64_t>(bytes / 4)};
  wire::AppendTensorPrefix(wire::kExecuteRequestInputs, {1, shape, bytes}, &header);
  return [=] {
    const grpc::Slice slices[] = {grpc::Slice(header),
                                  grpc::Slice(data->data(), bytes, grpc::Slice::STATIC_SLICE)};
    const grpc::ByteBuffer request(slices, 2);
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer response;
    grpc::Status status;
    auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    return status.ok() ? response.Length() : 0;
  };
}

// Both callers start from a buffer of the application's: what it takes to get it into a message is
// part of what generated code costs.
std::function<size_t()> ProtoCaller(const std::string& address, size_t bytes) {
  std::shared_ptr<v1::KernelService::Stub> stub = v1::KernelService::NewStub(Connect(address));
  const v1::Tensor tensor = FloatTensor(static_cast<int64_t>(bytes / 4));
  auto data = std::make_shared<const std::string>(tensor.data());
  return [=] {
    v1::ExecuteRequest request;
    request.set_kernel("identity");
    v1::Tensor* input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(static_cast<int64_t>(bytes / 4));
    input->set_data(*data);
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    return stub->Execute(&context, request, &response).ok() ? response.outputs(0).data().size() : 0;
  };
}

std::function<size_t()> LibraryCaller(const std::string& address, size_t bytes) {
  auto client = std::make_shared<client::Client>(address);
  const auto tensor = client::Tensor::FromFloats({static_cast<int64_t>(bytes / 4)},
                                                 std::vector<float>(bytes / 4, 1.5f));
  return [=]() -> size_t {
    const auto result = client->Identity(tensor);
    return result.ok() ? result->outputs[0].data().size() : 0;
  };
}

void Measure(Contender* contender, size_t bytes) {
  const auto begin = SteadyClock::now();
  for (int i = 0;
       i < kCallsPerRoundMin || Seconds(SteadyClock::now() - begin).count() < kSecondsPerRound;
       ++i) {
    const auto start = SteadyClock::now();
    if (contender->call() < bytes) {
      std::fprintf(stderr, "%s: a call failed\n", contender->name.c_str());
      std::exit(1);
    }
    contender->seconds.push_back(Seconds(SteadyClock::now() - start).count());
  }
}

double Percentile(std::vector<double> seconds, double fraction) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[static_cast<size_t>(fraction * static_cast<double>(seconds.size() - 1))];
}

void Compare(std::vector<Contender> contenders, size_t bytes) {
  for (Contender& contender : contenders)
    for (int i = 0; i < kCallsPerRoundMin; ++i) contender.call();  // connections, pages, pools
  for (int round = 0; round < kRounds; ++round)
    for (Contender& contender : contenders) Measure(&contender, bytes);
  const double echo = Percentile(contenders[0].seconds, 0.5);
  for (const Contender& contender : contenders) {
    const double p50 = Percentile(contender.seconds, 0.5);
    std::printf("| %zu | %s | %.1f | %.1f | %.3f | %.2f |\n", bytes, contender.name.c_str(),
                p50 * 1e6, Percentile(contender.seconds, 0.99) * 1e6,
                static_cast<double>(bytes) / p50 / 1e9, echo / p50);
  }
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--serve_echo") ServeEcho(argv[2]);
  std::vector<double> sizes_mib;
  for (int i = 1; i < argc; ++i) sizes_mib.push_back(std::atof(argv[i]));
  if (sizes_mib.empty()) sizes_mib = {16};
  ChildProcess raw_echo({argv[0], "--serve_echo", "raw"}, "");
  ChildProcess proto_echo({argv[0], "--serve_echo", "proto"}, "");
  ServerProcess server;
  std::printf("| bytes | what | p50 us | p99 us | GB/s each way | against the ByteBuffer echo |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (double mib : sizes_mib) {
    const size_t bytes = std::max<size_t>(4, static_cast<size_t>(mib * (1 << 20))) / 4 * 4;
    Compare({{"ByteBuffer echo", RawCaller(raw_echo.first_line(), bytes), {}},
             {"warpcall identity", RawCaller(server.address(), bytes), {}},
             {"warpcall identity, client library", LibraryCaller(server.address(), bytes), {}},
             {"protobuf bytes echo", ProtoCaller(proto_echo.first_line(), bytes), {}}},
            bytes);
  }
  return server.Stop();
}

}  // namespace
}  // namespace warpcall::testing

int main(int argc, char** argv) { return warpcall::testing::Main(argc, argv); }
