#include "tests/bench/transport_caller.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/load/calls.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/message.h"
#include "inference/grpc_service.grpc.pb.h"
#include "proto/common/status_macros.h"
#include "tests/bench/transport_infer.h"
#include "warpcall/client.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::bench {
namespace {

constexpr char kExecute[] = "/warpcall.v1.KernelService/Execute";
constexpr char kModelInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr int kConnectTimeoutSeconds = 10;
// Equals the servers' size: the benchmark is about the servers, and a client that reads in small
// pieces would hide them.
constexpr int kTcpReadChunkBytes = 1 << 20;

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const CallerOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Channels of equal arguments share a connection out of the process's pool.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, options.one_connection ? 0 : 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  if (options.kind != ContenderKind::kPeerStub) {
    arguments.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, kTcpReadChunkBytes);
    arguments.SetInt(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kTcpReadChunkBytes);
  }
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments);
  if (channel->WaitForConnected(std::chrono::system_clock::now() +
                                std::chrono::seconds(kConnectTimeoutSeconds)))
    return channel;
  return absl::UnavailableError(
      absl::StrCat("no connection to ", options.address, " within ", kConnectTimeoutSeconds, " s"));
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
    if (!verified_.Valid()) return CheckLength(response.Length(), options_.call.inputs[0]);
    const auto begin = std::chrono::steady_clock::now();
    const bool same = SameOutput(response, verified_, options_.call.inputs[0].data().size());
    compared_ = std::chrono::steady_clock::now() - begin;
    if (same) return absl::OkStatus();
    return absl::DataLossError("an answer differs from the one that was verified");
  }

  std::chrono::nanoseconds compared() const override { return compared_; }

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
    if (IsModelInfer(options_.kind)) {
      RETURN_IF_ERROR(CheckInferred(options_.call, response));
      verified_ = response;
      return absl::OkStatus();
    }
    client::Reply reply;
    RETURN_IF_ERROR(client::TakeFragments(response, &reply));
    ASSIGN_OR_RETURN(const client::Result result, client::DecodeResult(reply.fragments));
    return cli::CheckAnswer(options_.call, result);
  }

 private:
  absl::Status Unary(grpc::ByteBuffer* response) {
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::Status status;
    const char* const method = IsModelInfer(options_.kind) ? kModelInfer : kExecute;
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
  grpc::ByteBuffer verified_;  // the answer to ModelInfer that was looked at
  std::chrono::nanoseconds compared_ = {};
};

// Calls through generated code. Copying the bytes into a message is part of its cost.
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

// Calls as NVIDIA Triton's C++ client does: copies the bytes into the message, and out of the
// message when it sends.
class StubCaller final : public Caller {
 public:
  StubCaller(const CallerOptions& options, const std::shared_ptr<grpc::Channel>& channel)
      : call_(options.call),
        request_(InferHeader(call_)),
        stub_(inference::GRPCInferenceService::NewStub(channel)) {}

  absl::Status Call() override {
    inference::ModelInferResponse response;
    RETURN_IF_ERROR(Unary(&response));
    return CheckLength(
        response.raw_output_contents_size() == 1 ? response.raw_output_contents(0).size() : 0,
        call_.inputs[0]);
  }

  absl::Status Verify() override {
    inference::ModelInferResponse response;
    RETURN_IF_ERROR(Unary(&response));
    return CheckInferred(call_, response);
  }

 private:
  absl::Status Unary(inference::ModelInferResponse* response) {
    const absl::Span<const char> bytes = call_.inputs[0].data();
    request_.clear_raw_input_contents();
    request_.add_raw_input_contents(bytes.data(), bytes.size());
    grpc::ClientContext context;
    SetDeadline(&context);
    const grpc::Status status = stub_->ModelInfer(&context, request_, response);
    return client::EndOfCall(status, context).status;
  }

  const client::Call call_;
  inference::ModelInferRequest request_;
  const std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
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
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Connect(options));
  if (options.kind == ContenderKind::kProtobuf) {
    caller = std::make_unique<ProtobufCaller>(options, channel);
    return caller;
  }
  if (options.kind == ContenderKind::kPeerStub) {
    caller = std::make_unique<StubCaller>(options, channel);
    return caller;
  }
  if (IsModelInfer(options.kind)) {
    caller = std::make_unique<RawCaller>(options, channel, InferRequest(options.call));
    return caller;
  }
  ASSIGN_OR_RETURN(grpc::ByteBuffer request,
                   client::ToByteBuffer(client::EncodeCall(options.call, nullptr)));
  caller = std::make_unique<RawCaller>(options, channel, std::move(request));
  return caller;
}

}  // namespace warpcall::bench
