#include "tests/bench/transport_caller.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/load/calls.h"
#include "client/cpp/client.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/message.h"
#include "inference/grpc_service.pb.h"
#include "kernels/common/status_macros.h"
#include "proto/wire/cursor.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::bench {
namespace {

constexpr char kExecute[] = "/warpcall.v1.KernelService/Execute";
constexpr char kModelInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr int kConnectTimeoutSeconds = 10;
// As the servers read: the benchmark is about them, and a client that reads in small pieces would
// stand before them.
constexpr int kTcpReadChunkBytes = 1 << 20;

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

absl::Status CheckLength(size_t length, const client::Tensor& input) {
  const size_t bytes = input.data().size();
  if (length >= bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("a response has ", length, " bytes; its tensor alone has ", bytes));
}

// ByteBuffers over the application's bytes, on a completion queue that only this caller polls.
class RawCaller final : public Caller {
 public:
  RawCaller(const CallerOptions& options, const std::shared_ptr<grpc::Channel>& channel,
            grpc::ByteBuffer request)
      : options_(options), request_(std::move(request)), stub_(channel) {}

  absl::Status Call() override {
    grpc::ByteBuffer response;
    RETURN_IF_ERROR(Unary(&response));
    return CheckLength(response.Length(), options_.call.inputs[0]);
  }

  absl::Status Verify() override {
    grpc::ByteBuffer response;
    RETURN_IF_ERROR(Unary(&response));
    if (IsEcho(options_.kind)) {
      grpc::Slice sent, received;
      if (request_.DumpToSingleSlice(&sent).ok() && response.DumpToSingleSlice(&received).ok() &&
          sent.size() == received.size() && std::equal(sent.begin(), sent.end(), received.begin()))
        return absl::OkStatus();
      return absl::DataLossError("an echo's answer differs from its request");
    }
    if (options_.kind == ContenderKind::kInfer) return VerifyInferred(response);
    client::Reply reply;
    RETURN_IF_ERROR(client::TakeFragments(response, &reply));
    ASSIGN_OR_RETURN(const client::Result result, client::DecodeResult(reply.fragments));
    return cli::CheckAnswer(options_.call, result);
  }

 private:
  // The kernel is identity.
  absl::Status VerifyInferred(const grpc::ByteBuffer& response) const {
    grpc::Slice whole;
    inference::ModelInferResponse answer;
    const absl::Span<const char> sent = options_.call.inputs[0].data();
    if (response.DumpToSingleSlice(&whole).ok() &&
        answer.ParseFromArray(whole.begin(), static_cast<int>(whole.size())) &&
        answer.raw_output_contents_size() == 1 &&
        answer.raw_output_contents(0) == absl::string_view(sent.data(), sent.size()))
      return absl::OkStatus();
    return absl::DataLossError("identity's answer differs from its request");
  }

  absl::Status Unary(grpc::ByteBuffer* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::Status status;
    const char* const method = options_.kind == ContenderKind::kInfer ? kModelInfer : kExecute;
    auto call = stub_.PrepareUnaryCall(&context, method, request_, &queue_);
    call->StartCall();
    call->Finish(response, &status, nullptr);
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    return client::EndOfCall(status, context).status;
  }

  const CallerOptions options_;
  const grpc::ByteBuffer request_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

// A ModelInferRequest over the application's bytes, which outlive it.
grpc::ByteBuffer InferRequest(const client::Call& call) {
  const client::Tensor& tensor = call.inputs[0];
  inference::ModelInferRequest request;
  request.set_model_name(call.kernel);
  inference::ModelInferRequest::InferInputTensor* const input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->mutable_shape()->Assign(tensor.shape().begin(), tensor.shape().end());
  std::string header = request.SerializeAsString();
  wire::AppendVarint(
      wire::Tag(inference::ModelInferRequest::kRawInputContentsFieldNumber, wire::kLength),
      &header);
  wire::AppendVarint(tensor.data().size(), &header);
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      grpc::Slice(tensor.data().data(), tensor.data().size(), grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, 2);
}

// What generated code makes of it. The bytes have to get into a message: part of what it costs.
class ProtobufCaller final : public Caller {
 public:
  ProtobufCaller(const CallerOptions& options, const std::shared_ptr<grpc::Channel>& channel)
      : input_(options.call.inputs[0]), stub_(v1::KernelService::NewStub(channel)) {}

  absl::Status Call() override {
    v1::ExecuteResponse response;
    RETURN_IF_ERROR(Unary(&response));
    return CheckLength(response.outputs_size() == 1 ? response.outputs(0).data().size() : 0,
                       input_);
  }

  absl::Status Verify() override {
    v1::ExecuteResponse response;
    RETURN_IF_ERROR(Unary(&response));
    if (response.outputs_size() == 1 && response.outputs(0).data() == input_.data())
      return absl::OkStatus();
    return absl::DataLossError("an echo's answer differs from its request");
  }

 private:
  absl::Status Unary(v1::ExecuteResponse* response) {
    v1::ExecuteRequest request;
    v1::Tensor* input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->mutable_shape()->Assign(input_.shape().begin(), input_.shape().end());
    input->set_data(input_.data().data(), input_.data().size());
    grpc::ClientContext context;
    SetDeadline(&context);
    const grpc::Status status = stub_->Execute(&context, request, response);
    return client::EndOfCall(status, context).status;
  }

  const client::Tensor input_;
  const std::unique_ptr<v1::KernelService::Stub> stub_;
};

class LibraryCaller final : public Caller {
 public:
  explicit LibraryCaller(const CallerOptions& options)
      : call_(options.call),
        client_(options.address, {.timeout = absl::Seconds(kCallTimeoutSeconds)}) {}

  absl::Status Call() override {
    const absl::StatusOr<client::Result> result = client_.Execute(call_);
    RETURN_IF_ERROR(result.status());
    return CheckLength(result->outputs.size() == 1 ? result->outputs[0].data().size() : 0,
                       call_.inputs[0]);
  }

  absl::Status Verify() override {
    const absl::StatusOr<client::Result> result = client_.Execute(call_);
    RETURN_IF_ERROR(result.status());
    return cli::CheckAnswer(call_, *result);
  }

 private:
  const client::Call call_;
  client::Client client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Caller>> NewCaller(const CallerOptions& options) {
  std::unique_ptr<Caller> caller;
  if (options.kind == ContenderKind::kLibrary) {
    caller = std::make_unique<LibraryCaller>(options);
    return caller;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Connect(options.address));
  if (options.kind == ContenderKind::kProtobuf) {
    caller = std::make_unique<ProtobufCaller>(options, channel);
    return caller;
  }
  if (options.kind == ContenderKind::kInfer) {
    caller = std::make_unique<RawCaller>(options, channel, InferRequest(options.call));
    return caller;
  }
  ASSIGN_OR_RETURN(grpc::ByteBuffer request,
                   client::ToByteBuffer(client::EncodeCall(options.call, nullptr)));
  caller = std::make_unique<RawCaller>(options, channel, std::move(request));
  return caller;
}

}  // namespace warpcall::bench
