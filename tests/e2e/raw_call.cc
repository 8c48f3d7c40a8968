#include "tests/e2e/raw_call.h"

#include <grpcpp/generic/generic_stub.h>

#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {

std::string Reply::CodeAndMessage() const {
  return absl::StrCat(status.error_code(), ": ", status.error_message());
}

namespace {

std::string TrailerOf(const grpc::ClientContext& context, const char* name) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(name);
  return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
}

}  // namespace

std::string PushbackOf(const grpc::ClientContext& context) {
  return TrailerOf(context, "grpc-retry-pushback-ms");
}

std::string LostHandlesOf(const grpc::ClientContext& context) {
  return TrailerOf(context, "warpcall-lost-handles");
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  const auto channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  // Waits, so that only the server's work can fail a call, never a slow connection.
  // Ends the test otherwise, which then shows the log of the server.
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(90)))
    throw std::runtime_error(absl::StrCat("no connection to ", address, " within 90 s"));
  return channel;
}

Reply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& message,
              std::chrono::milliseconds timeout) {
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  Reply reply;
  auto call =
      stub.PrepareUnaryCall(&context, "/warpcall.v1.KernelService/Execute", request, &queue);
  call->StartCall();
  call->Finish(&response, &reply.status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  reply.pushback_ms = PushbackOf(context);
  reply.lost_handles = LostHandlesOf(context);
  reply.request_id = TrailerOf(context, "warpcall-request-id");
  if (reply.status.ok()) {
    grpc::Slice whole;
    if (!response.DumpToSingleSlice(&whole).ok() ||
        !reply.response.ParseFromArray(whole.begin(), static_cast<int>(whole.size())))
      reply.status = grpc::Status(grpc::StatusCode::INTERNAL, "the response does not parse");
  }
  return reply;
}

Reply Execute(const std::shared_ptr<grpc::Channel>& channel, const v1::ExecuteRequest& request) {
  return CallRaw(channel, request.SerializeAsString());
}

v1::Tensor FloatTensor(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
  for (int64_t dim : shape) tensor.add_shape(dim);
  tensor.set_data(values.data(), 4 * values.size());
  return tensor;
}

v1::Tensor FloatTensor(int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) * 0.125f - 6;
  return FloatTensor({elements}, values);
}

std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.data().size() / 4);
  std::memcpy(values.data(), tensor.data().data(), 4 * values.size());
  return values;
}

v1::ExecuteRequest Request(const std::string& kernel, const std::vector<v1::Tensor>& inputs) {
  v1::ExecuteRequest request;
  request.set_kernel(kernel);
  for (const v1::Tensor& input : inputs) *request.add_inputs() = input;
  return request;
}

v1::ExecuteRequest LargeAnswerRequest() {
  return Request("matmul", {FloatTensor({2048, 0}, {}), FloatTensor({0, 1024}, {})});
}

}  // namespace warpcall::testing
