#include "tests/bench/transport_caller.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "kernels/common/status_macros.h"
#include "proto/wire/tensor_split.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::bench {
namespace {

constexpr char kMethod[] = "/warpcall.v1.KernelService/Execute";
constexpr int kConnectTimeoutSeconds = 10;
// As the servers read: the benchmark is about them, and a client that reads in small pieces would
// stand before them.
constexpr int kTcpReadChunkBytes = 1 << 20;
constexpr int64_t kGeluSamples = 65536;
// gelu_cases.cc bounds the rows' errors; this one tells answers from something else.
constexpr double kGeluErrorMax = 1e-5;

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // channels would share a connection
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, kTcpReadChunkBytes);
  arguments.SetInt(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kTcpReadChunkBytes);
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (channel->WaitForConnected(std::chrono::system_clock::now() +
                                std::chrono::seconds(kConnectTimeoutSeconds)))
    return channel;
  return absl::UnavailableError(
      absl::StrCat("no connection to ", address, " within ", kConnectTimeoutSeconds, " s"));
}

void SetDeadline(grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::seconds(kCallTimeoutSeconds));
}

absl::Status ToStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status CheckLength(size_t length, size_t bytes) {
  if (length >= bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("a response has ", length, " bytes; its tensor alone has ", bytes));
}

float FloatAt(absl::Span<const char> bytes, int64_t index) {
  float value;
  std::memcpy(&value, bytes.data() + 4 * index, sizeof(value));
  return value;
}

double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// ByteBuffers over the application's bytes, on a completion queue that only this caller polls.
class RawCaller final : public Caller {
 public:
  RawCaller(const CallerOptions& options, const std::shared_ptr<grpc::Channel>& channel)
      : options_(options), stub_(channel) {
    v1::ExecuteRequest request;
    request.set_kernel(options.contender.kernel);
    request.set_device(options.device);
    header_ = request.SerializeAsString();
    const int64_t shape[] = {static_cast<int64_t>(options.data.size() / sizeof(float))};
    wire::AppendTensorPrefix(wire::kExecuteRequestInputs,
                             {v1::DATA_TYPE_FLOAT32, shape, options.data.size()}, &header_);
    const grpc::Slice slices[] = {
        grpc::Slice(header_.data(), header_.size(), grpc::Slice::STATIC_SLICE),
        grpc::Slice(options.data.data(), options.data.size(), grpc::Slice::STATIC_SLICE)};
    request_ = grpc::ByteBuffer(slices, 2);
  }

  absl::Status Call() override {
    grpc::ByteBuffer response;
    RETURN_IF_ERROR(Unary(&response));
    return CheckLength(response.Length(), options_.data.size());
  }

  absl::Status Verify() override {
    grpc::ByteBuffer response;
    RETURN_IF_ERROR(Unary(&response));
    std::vector<grpc::Slice> slices;
    RETURN_IF_ERROR(ToStatus(response.Dump(&slices)));
    std::vector<wire::Bytes> fragments;
    for (const grpc::Slice& slice : slices)
      fragments.push_back({reinterpret_cast<const char*>(slice.begin()), slice.size()});
    // An echo answers with the request.
    const bool echo = IsEcho(options_.contender.kind);
    wire::SplitMessage split;
    RETURN_IF_ERROR(wire::SplitTensors(
        fragments, echo ? wire::kExecuteRequestInputs : wire::kExecuteResponseOutputs, &split));
    if (split.tensor_data.size() != 1)
      return absl::DataLossError(
          absl::StrCat("an answer has ", split.tensor_data.size(), " tensors; expected 1"));
    std::vector<char> output(split.tensor_data[0].size);
    split.tensor_data[0].CopyTo(output.data());
    return CheckAnswer(echo ? "identity" : options_.contender.kernel, options_.data, output);
  }

 private:
  absl::Status Unary(grpc::ByteBuffer* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::Status status;
    auto call = stub_.PrepareUnaryCall(&context, kMethod, request_, &queue_);
    call->StartCall();
    call->Finish(response, &status, nullptr);
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    return ToStatus(status);
  }

  const CallerOptions options_;
  std::string header_;
  grpc::ByteBuffer request_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

// What generated code makes of it. The bytes have to get into a message: part of what it costs.
class ProtobufCaller final : public Caller {
 public:
  ProtobufCaller(const CallerOptions& options, const std::shared_ptr<grpc::Channel>& channel)
      : options_(options), stub_(v1::KernelService::NewStub(channel)) {}

  absl::Status Call() override {
    v1::ExecuteResponse response;
    RETURN_IF_ERROR(Unary(&response));
    return CheckLength(response.outputs_size() == 1 ? response.outputs(0).data().size() : 0,
                       options_.data.size());
  }

  absl::Status Verify() override {
    v1::ExecuteResponse response;
    RETURN_IF_ERROR(Unary(&response));
    if (response.outputs_size() != 1) return absl::DataLossError("an answer without its tensor");
    return CheckAnswer("identity", options_.data, response.outputs(0).data());
  }

 private:
  absl::Status Unary(v1::ExecuteResponse* response) {
    v1::ExecuteRequest request;
    v1::Tensor* input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(static_cast<int64_t>(options_.data.size() / sizeof(float)));
    input->set_data(options_.data.data(), options_.data.size());
    grpc::ClientContext context;
    SetDeadline(&context);
    return ToStatus(stub_->Execute(&context, request, response));
  }

  const CallerOptions options_;
  const std::unique_ptr<v1::KernelService::Stub> stub_;
};

class LibraryCaller final : public Caller {
 public:
  explicit LibraryCaller(const CallerOptions& options)
      : options_(options),
        client_(options.address, {.timeout = absl::Seconds(kCallTimeoutSeconds)}) {
    call_.kernel = options.contender.kernel;
    call_.inputs = {client::Tensor::Borrow(
        DataType::kFloat32, {static_cast<int64_t>(options.data.size() / sizeof(float))},
        options.data)};
    call_.options.device = options.device;
  }

  absl::Status Call() override { return Execute().status(); }

  absl::Status Verify() override {
    absl::StatusOr<client::Result> result = Execute();
    if (!result.ok()) return result.status();
    return CheckAnswer(options_.contender.kernel, options_.data, result->outputs[0].data());
  }

 private:
  absl::StatusOr<client::Result> Execute() {
    absl::StatusOr<client::Result> result = client_.Execute(call_);
    if (!result.ok()) return result;
    RETURN_IF_ERROR(CheckLength(result->outputs.size() == 1 ? result->outputs[0].data().size() : 0,
                                options_.data.size()));
    return result;
  }

  const CallerOptions options_;
  client::Client client_;
  client::Call call_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Caller>> NewCaller(const CallerOptions& options) {
  std::unique_ptr<Caller> caller;
  if (options.contender.kind == ContenderKind::kLibrary) {
    caller = std::make_unique<LibraryCaller>(options);
    return caller;
  }
  std::shared_ptr<grpc::Channel> channel;
  ASSIGN_OR_RETURN(channel, Connect(options.address));
  if (options.contender.kind == ContenderKind::kProtobuf)
    caller = std::make_unique<ProtobufCaller>(options, channel);
  else
    caller = std::make_unique<RawCaller>(options, channel);
  return caller;
}

std::vector<char> RandomFloats(size_t bytes) {
  std::vector<char> data(bytes);
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<float> uniform(-6, 6);
  for (size_t i = 0; i < bytes; i += sizeof(float)) {
    const float value = uniform(random);
    std::memcpy(&data[i], &value, sizeof(value));
  }
  return data;
}

absl::Status CheckAnswer(const std::string& kernel, absl::Span<const char> input,
                         absl::Span<const char> output) {
  if (output.size() != input.size())
    return absl::DataLossError(absl::StrCat("an answer of ", kernel, " has ", output.size(),
                                            " bytes; its input had ", input.size()));
  if (kernel == "identity") {
    if (std::equal(input.begin(), input.end(), output.begin())) return absl::OkStatus();
    return absl::DataLossError("an answer of identity differs from its input");
  }
  const auto elements = static_cast<int64_t>(input.size() / sizeof(float));
  const int64_t step = std::max<int64_t>(1, elements / kGeluSamples);
  for (int64_t i = 0; i < elements; i += step) {
    const double expected = GeluTanh(FloatAt(input, i));
    const double found = FloatAt(output, i);
    if (!(std::abs(found - expected) <= kGeluErrorMax))
      return absl::DataLossError(absl::StrCat("element ", i, " of an answer of ", kernel, " is ",
                                              found, "; expected ", expected, " within ",
                                              kGeluErrorMax));
  }
  return absl::OkStatus();
}

}  // namespace warpcall::bench
