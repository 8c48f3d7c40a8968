// Counts the bytes that the whole process copies for a request: every input once, on its way to the
// device, and nothing else. copy_meter stands before the C library's functions.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kElements = 1 << 18;
constexpr int64_t kBytes = 4 * kElements;

// Beside tensors: tables at the start (2 MiB with eight kernels), headers, log lines. Ends of
// tensors that gRPC received in slices too short for the meter make up less.
constexpr int64_t kRestBytesMax = 4 << 20;

class NoCopiesTest : public ::testing::Test {
 protected:
  NoCopiesTest() {
    setenv("LD_PRELOAD", COPY_METER_PATH, 1);
    setenv("WARPCALL_COPY_METER", path_.c_str(), 1);
    server_ = std::make_unique<ServerProcess>();
    unsetenv("LD_PRELOAD");
    unsetenv("WARPCALL_COPY_METER");
  }

  // Ends the server.
  void ExpectCopied(int64_t input_bytes) {
    const std::string told = "warpcall_host_copy_bytes_total";
    EXPECT_EQ(server_->Sum(told, {"where=\"copy_in\""}), input_bytes);
    EXPECT_EQ(server_->Sum(told, {"where=\"copy_out\""}), 0);
    const std::string path = absl::StrCat(path_, ".", server_->pid());
    EXPECT_EQ(server_->Stop(), 0);
    int64_t copied = -1;
    std::ifstream(path) >> copied;
    unlink(path.c_str());
    EXPECT_GE(copied, input_bytes - kRestBytesMax);
    EXPECT_LE(copied, input_bytes + kRestBytesMax);
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/copy-meter-", getpid());
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(NoCopiesTest, ExecuteCopiesEveryInputOnceAndNothingElse) {
  constexpr int kRequests = 32;
  const auto channel = Connect(server_->address());
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(kElements)});
  request.set_implementation("cpu");
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(Execute(channel, request).status.ok());
  ExpectCopied(kRequests * kBytes);
}

TEST_F(NoCopiesTest, ExecuteDoesSoForSmallOnesToo) {
  constexpr int kRequests = 4000;
  const auto channel = Connect(server_->address());
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(1 << 10)});
  request.set_implementation("cpu");
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(Execute(channel, request).status.ok());
  ExpectCopied(kRequests * (4 << 10));
}

TEST_F(NoCopiesTest, ExecuteStreamDoesSoToo) {
  constexpr int kChunks = 32;
  const auto stub = v1::KernelService::NewStub(Connect(server_->address()));
  grpc::ClientContext context;
  const auto stream = stub->ExecuteStream(&context);
  std::thread writer([&] {
    v1::ExecuteStreamRequest message;
    *message.mutable_header() = Request("gelu", {FloatTensor(0)});
    message.mutable_header()->set_implementation("cpu");
    message.mutable_header()->mutable_inputs(0)->set_shape(0, kChunks * kElements);
    EXPECT_TRUE(stream->Write(message));
    for (int i = 0; i < kChunks; ++i) {
      message.mutable_chunk()->set_offset(i * kBytes);
      message.mutable_chunk()->set_data(std::string(kBytes, 'x'));
      EXPECT_TRUE(stream->Write(message));
    }
    stream->WritesDone();
  });
  int64_t came = 0;
  for (v1::ExecuteStreamResponse message; stream->Read(&message);)
    came += static_cast<int64_t>(message.chunk().data().size());
  writer.join();
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(came, kChunks * kBytes);
  ExpectCopied(kChunks * kBytes);
}

inference::ModelInferRequest InferRequest(int64_t elements) {
  inference::ModelInferRequest request;
  request.set_model_name("gelu_fp32__cpu");
  inference::ModelInferRequest::InferInputTensor* const input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(elements);
  return request;
}

TEST_F(NoCopiesTest, ModelInferDoesSoToo) {
  constexpr int kRequests = 32;
  const auto stub = inference::GRPCInferenceService::NewStub(Connect(server_->address()));
  inference::ModelInferRequest request = InferRequest(kElements);
  request.add_raw_input_contents(std::string(kBytes, 'x'));
  for (int i = 0; i < kRequests; ++i) {
    // The second half comes as typed contents.
    if (i == kRequests / 2) {
      request.clear_raw_input_contents();
      request.mutable_inputs(0)->mutable_contents()->mutable_fp32_contents()->Resize(
          static_cast<int>(kElements), 1);
    }
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const grpc::Status status = stub->ModelInfer(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.raw_output_contents(0).size(), static_cast<size_t>(kBytes));
  }
  ExpectCopied(kRequests * kBytes);
}

TEST_F(NoCopiesTest, ModelStreamInferDoesSoToo) {
  constexpr int kRequests = 32;
  const auto stub = inference::GRPCInferenceService::NewStub(Connect(server_->address()));
  grpc::ClientContext context;
  const auto stream = stub->ModelStreamInfer(&context);
  std::thread writer([&] {
    inference::ModelInferRequest request = InferRequest(kElements);
    request.add_raw_input_contents(std::string(kBytes, 'x'));
    for (int i = 0; i < kRequests; ++i) EXPECT_TRUE(stream->Write(request));
    stream->WritesDone();
  });
  int64_t came = 0;
  for (inference::ModelStreamInferResponse message; stream->Read(&message);)
    came += static_cast<int64_t>(message.infer_response().raw_output_contents(0).size());
  writer.join();
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(came, kRequests * kBytes);
  ExpectCopied(kRequests * kBytes);
}

}  // namespace
}  // namespace warpcall::testing
