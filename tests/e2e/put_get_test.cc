// Tensors that stay on the device, through the real server, as any client could use them: Put, Get,
// Free, ListTensors, handles in Execute, ExecuteStream, Profile and the Open Inference Protocol,
// kept outputs, and all that may go wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/access/sha256.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/e2e/stream_call.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string Sha256Of(const std::string& bytes) {
  Sha256Hash hash;
  hash.Add(bytes);
  const auto digest = hash.Finish();
  return {digest.begin(), digest.end()};
}

std::string CodeAndMessage(const grpc::Status& status) {
  return absl::StrCat(static_cast<int>(status.error_code()), ": ", status.error_message());
}

v1::Tensor Handle(const std::string& handle) {
  v1::Tensor tensor;
  tensor.set_handle(handle);
  return tensor;
}

// The type and the shape.
v1::Tensor WithoutData(v1::Tensor tensor) {
  tensor.clear_data();
  return tensor;
}

class PutGetTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags) {
    flags.push_back("--devices=cpu");
    flags.push_back("--self_test=off");
    server_ = std::make_unique<ServerProcess>(flags);
    channel_ = Connect(server_->address());
    stub_ = v1::KernelService::NewStub(channel_);
  }

  // One Put, message by message.
  struct Putting {
    explicit Putting(v1::KernelService::Stub* stub, const char* timeout = nullptr) {
      if (timeout != nullptr) context.AddMetadata("grpc-timeout", timeout);
      writer = stub->Put(&context, &response);
    }
    bool Send(const v1::PutHeader& header) {
      v1::PutRequest request;
      *request.mutable_header() = header;
      return writer->Write(request);
    }
    bool SendChunk(int64_t offset, const std::string& data, int input = 0) {
      v1::PutRequest request;
      *request.mutable_chunk() = ChunkOf(offset, data, input).chunk();
      return writer->Write(request);
    }
    void SendAll(const std::string& data, size_t chunk_bytes = kMib) {
      for (size_t at = 0; at < data.size(); at += chunk_bytes)
        SendChunk(static_cast<int64_t>(at), data.substr(at, chunk_bytes));
    }
    grpc::Status Finish() {
      writer->WritesDone();
      return writer->Finish();
    }

    grpc::ClientContext context;
    v1::PutResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::PutRequest>> writer;
  };

  // Puts it whole in the header, or in chunks.
  v1::PutResponse Put(const v1::Tensor& tensor, v1::PutHeader header = {}, bool chunks = false) {
    *header.mutable_tensor() = chunks ? WithoutData(tensor) : tensor;
    Putting put(stub_.get());
    put.Send(header);
    if (chunks) put.SendAll(tensor.data());
    const grpc::Status status = put.Finish();
    EXPECT_EQ(CodeAndMessage(status), "0: ");
    return put.response;
  }
  std::string PutRefused(const v1::PutHeader& header) {
    Putting put(stub_.get());
    put.Send(header);
    return CodeAndMessage(put.Finish());
  }

  // The tensor, or the error in `data`.
  v1::Tensor Get(const std::string& handle) {
    grpc::ClientContext context;
    v1::GetRequest request;
    request.set_handle(handle);
    const auto reader = stub_->Get(&context, request);
    v1::Tensor tensor;
    v1::GetResponse response;
    while (reader->Read(&response)) {
      if (response.has_header()) {
        tensor = response.header();
        continue;
      }
      EXPECT_EQ(response.chunk().offset(), static_cast<int64_t>(tensor.data().size()));
      tensor.mutable_data()->append(response.chunk().data());
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok()) tensor.set_data(CodeAndMessage(status));
    lost_ = LostHandlesOf(context);
    return tensor;
  }

  v1::FreeResponse Free(const std::vector<std::string>& handles) {
    grpc::ClientContext context;
    v1::FreeRequest request;
    for (const std::string& handle : handles) request.add_handles(handle);
    v1::FreeResponse response;
    EXPECT_TRUE(stub_->Free(&context, request, &response).ok());
    return response;
  }

  std::vector<v1::TensorInfo> List() {
    grpc::ClientContext context;
    v1::ListTensorsResponse response;
    EXPECT_TRUE(stub_->ListTensors(&context, {}, &response).ok());
    return {response.tensors().begin(), response.tensors().end()};
  }

  // Execute, with its trailer in lost_.
  Reply Run(const v1::ExecuteRequest& request) {
    Reply reply = Execute(channel_, request);
    lost_ = reply.lost_handles;
    return reply;
  }

  // A request with one input, which is a handle.
  static inference::ModelInferRequest Inference(const std::string& model, const std::string& input,
                                                const std::string& handle) {
    inference::ModelInferRequest request;
    request.set_model_name(model);
    inference::ModelInferRequest::InferInputTensor& tensor = *request.add_inputs();
    tensor.set_name(input);
    (*tensor.mutable_parameters())["handle"].set_string_param(handle);
    return request;
  }
  // ModelInfer, with its trailer in lost_.
  std::string Infer(const inference::ModelInferRequest& request,
                    inference::ModelInferResponse* response = nullptr) {
    inference::ModelInferResponse dropped;
    grpc::ClientContext context;
    const grpc::Status status = inference::GRPCInferenceService::NewStub(channel_)->ModelInfer(
        &context, request, response == nullptr ? &dropped : response);
    lost_ = LostHandlesOf(context);
    return CodeAndMessage(status);
  }

  double Ended(const std::string& why) {
    return server_->Sum("warpcall_resident_ended_total", {absl::StrCat("why=\"", why, "\"")});
  }
  double CopiedBytes() { return server_->Sum("warpcall_host_copy_bytes_total"); }
  double UsedBytes() { return server_->Sum("warpcall_resident_bytes", {"state=\"used\""}); }

  std::unique_ptr<ServerProcess> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::KernelService::Stub> stub_;
  std::string lost_;
};

TEST_F(PutGetTest, WhatWasPutComesBackAndServesAsAnInput) {
  Start({});
  for (const bool chunks : {false, true}) {
    for (const int64_t elements : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{5 * kMib}}) {
      const v1::Tensor tensor = FloatTensor(elements);
      if (!chunks && tensor.data().size() > 16 * kMib) continue;
      const double copied = CopiedBytes();
      const v1::PutResponse put = Put(tensor, {}, chunks);
      EXPECT_THAT(put.handle(), SizeIs(40));
      EXPECT_EQ(put.device(), "cpu");
      EXPECT_EQ(put.bytes(), static_cast<int64_t>(tensor.data().size()));
      EXPECT_FALSE(put.existed());
      const v1::Tensor got = Get(put.handle());
      EXPECT_TRUE(got.data() == tensor.data()) << elements << " " << got.data().substr(0, 200);
      // Once on the way in, or twice where short data are gathered; and not on the way out.
      if (elements >= 1000)
        EXPECT_EQ(CopiedBytes() - copied, static_cast<double>(tensor.data().size()));
      EXPECT_EQ(got.shape(0), elements);
      EXPECT_EQ(got.handle(), put.handle());
      const Reply with_bytes = Run(Request("gelu", {tensor}));
      const Reply by_handle = Run(Request("gelu", {Handle(put.handle())}));
      ASSERT_EQ(by_handle.CodeAndMessage(), "0: ");
      EXPECT_TRUE(by_handle.response.outputs(0).data() == with_bytes.response.outputs(0).data());
      EXPECT_EQ(by_handle.response.resident_bytes(), put.bytes());
      EXPECT_EQ(with_bytes.response.resident_bytes(), 0);
    }
  }
  EXPECT_EQ(server_->Sum("warpcall_resident_tensors"), 7);
  // What Put and Get run is no request.
  EXPECT_EQ(server_->Sum("warpcall_requests_total", {"kernel=\"identity\""}), 0);
  EXPECT_EQ(server_->Stop(), 0);  // with all of them
}

TEST_F(PutGetTest, KeptOutputsFeedTheNextRequest) {
  Start({});
  const v1::Tensor x = FloatTensor(3000);
  v1::ExecuteRequest first = Request("gelu", {x});
  first.set_keep_outputs(true);
  const Reply kept = Run(first);
  ASSERT_EQ(kept.CodeAndMessage(), "0: ");
  const v1::Tensor& output = kept.response.outputs(0);
  EXPECT_EQ(output.data(), "");
  EXPECT_EQ(output.data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(output.shape(0), 3000);
  EXPECT_EQ(kept.response.resident_bytes(), 12000);
  const Reply plain = Run(Request("gelu", {x}));
  EXPECT_TRUE(Get(output.handle()).data() == plain.response.outputs(0).data());
  const Reply second = Run(Request("gelu", {output}));
  ASSERT_EQ(second.CodeAndMessage(), "0: ");
  EXPECT_TRUE(second.response.outputs(0).data() ==
              Run(Request("gelu", {plain.response.outputs(0)})).response.outputs(0).data());
  // What the server chose is the tensor's device.
  EXPECT_EQ(second.response.device(), "cpu");
}

TEST_F(PutGetTest, StreamsTakeSharedInputsAndKeepOutputs) {
  Start({});
  const v1::Tensor a = FloatTensor({4096, 512}, std::vector<float>(4096 * 512, 0.5F));
  std::vector<float> weights(512 * 256);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 17);
  const v1::Tensor b = FloatTensor({512, 256}, weights);
  const std::string b_handle = Put(b).handle();
  v1::ExecuteStreamRequest header = Header("matmul", {4096, 512});
  header.mutable_header()->add_inputs()->set_handle(b_handle);
  const auto run = [&](bool keep) {
    header.mutable_header()->set_keep_outputs(keep);
    Stream stream(*server_);
    stream.Send(header);
    stream.SendChunks(a.data(), 0, a.data().size(), kMib);
    Answer answer;
    EXPECT_TRUE(stream.Receive(&answer));
    stream.CloseInput();
    EXPECT_TRUE(stream.Finish().ok());
    return answer;
  };
  const std::string expected = Run(Request("matmul", {a, b})).response.outputs(0).data();
  const Answer plain = run(false);
  EXPECT_TRUE(plain.output == expected);
  EXPECT_EQ(plain.done.resident_bytes(), static_cast<int64_t>(b.data().size()));
  const Answer kept = run(true);
  EXPECT_EQ(kept.received_bytes, 0);
  ASSERT_EQ(kept.done.outputs_size(), 1);
  EXPECT_TRUE(Get(kept.done.outputs(0).handle()).data() == expected);
  // An input of which each part has a piece.
  v1::ExecuteStreamRequest split = Header("gelu", {});
  split.mutable_header()->mutable_inputs(0)->Clear();
  split.mutable_header()->mutable_inputs(0)->set_handle(b_handle);
  Stream stream(*server_);
  stream.Send(split);
  EXPECT_THAT(CodeAndMessage(stream.AwaitRefusal()), HasSubstr("3: input 0 (x) is a handle"));
}

TEST_F(PutGetTest, TheOpenInferenceProtocolTakesHandles) {
  Start({});
  const v1::Tensor a = FloatTensor({3, 2}, {1, 2, 3, 4, 5, 6});
  const v1::Tensor b = FloatTensor({2, 4}, {1, 0, 2, 0, 0, 1, 0, 2});
  const std::string handle = Put(b).handle();
  inference::ModelInferRequest request = Inference("matmul", "b", handle);
  inference::ModelInferRequest::InferInputTensor& sent = *request.add_inputs();
  sent.set_name("a");
  sent.set_datatype("FP32");
  sent.mutable_shape()->Assign(a.shape().begin(), a.shape().end());
  request.add_raw_input_contents(a.data());
  const std::string expected = Run(Request("matmul", {a, b})).response.outputs(0).data();
  inference::ModelInferResponse response;
  EXPECT_EQ(Infer(request, &response), "0: ");
  ASSERT_EQ(response.raw_output_contents_size(), 1);
  EXPECT_TRUE(response.raw_output_contents(0) == expected);
  EXPECT_EQ(response.parameters().at("resident_bytes").int64_param(), 32);
  // One stream: the tensor, and what is not there.
  grpc::ClientContext stream_context;
  const auto stub = inference::GRPCInferenceService::NewStub(channel_);
  const auto stream = stub->ModelStreamInfer(&stream_context);
  inference::ModelStreamInferResponse streamed;
  ASSERT_TRUE(stream->Write(request) && stream->Read(&streamed));
  EXPECT_EQ(streamed.error_message(), "");
  ASSERT_EQ(streamed.infer_response().raw_output_contents_size(), 1);
  EXPECT_TRUE(streamed.infer_response().raw_output_contents(0) == expected);
  Free({handle});
  ASSERT_TRUE(stream->Write(request) && stream->Read(&streamed));
  EXPECT_EQ(streamed.error_message(),
            absl::StrCat("a tensor is not on the server: ", handle, " freed"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(Infer(request), absl::StrCat("5: ", streamed.error_message()));
  EXPECT_EQ(lost_, handle + " freed");
  (*request.mutable_parameters())["device"].set_string_param("cuda:0");
  (*request.mutable_inputs(0)->mutable_parameters())["handle"].set_string_param(Put(b).handle());
  EXPECT_EQ(Infer(request), "3: input 1 is on cpu, but the request asks for cuda:0");
}

TEST_F(PutGetTest, AProfilesProcessGetsTheBytes) {
  Start({"--max_message_mib=1"});
  const v1::Tensor tensor = FloatTensor(1000);
  v1::ProfileRequest request;
  const auto profile = [&](const std::string& handle) {
    *request.mutable_request() = Request("gelu", {Handle(handle)});
    grpc::ClientContext context;
    v1::ProfileResponse response;
    const grpc::Status status = stub_->Profile(&context, request, &response);
    lost_ = LostHandlesOf(context);
    return status.ok() ? response.device() : CodeAndMessage(status);
  };
  const std::string handle = Put(tensor).handle();
  EXPECT_EQ(profile(handle), "cpu");
  EXPECT_EQ(profile(Put(FloatTensor(300'000), {}, true).handle()),
            "8: the inputs' data has 1200000 bytes; the limit is 1048576 (max_message_mib)");
  Free({handle});
  EXPECT_EQ(profile(handle), absl::StrCat("5: a tensor is not on the server: ", handle, " freed"));
  EXPECT_EQ(lost_, handle + " freed");
}

TEST_F(PutGetTest, AProfileWhoseClientLeavesWaitsForNoDevice) {
  Start({"--test_fault_injection", "--lanes_per_device=1"});
  v1::ProfileRequest request;
  *request.mutable_request() = Request("gelu", {Handle(Put(FloatTensor(1000)).handle())});
  Gate gate;
  std::thread holder([&] { Execute(channel_, gate.HeldRequest()); });
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(*server_); }));
  grpc::ClientContext context;
  std::thread leaver([&] {
    v1::ProfileResponse response;
    EXPECT_EQ(stub_->Profile(&context, request, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  // The job that reads the tensor waits for the lane.
  EXPECT_TRUE(Eventually([&] { return server_->Sum("warpcall_queue_depth") == 1; }));
  context.TryCancel();
  leaver.join();
  EXPECT_TRUE(Eventually([&] { return LaneIsHeld(*server_); }));
  gate.Open();
  holder.join();
}

TEST_F(PutGetTest, AnInferenceHoldsWhatWasFreedMeanwhile) {
  Start({"--test_fault_injection"});
  const v1::Tensor tensor = FloatTensor(1000);
  const std::string used = Put(tensor).handle();
  Gate gate;
  inference::ModelInferRequest held = Inference("held", "x", used);
  (*held.mutable_parameters())["gate"].set_string_param(gate.path());
  inference::ModelInferResponse response;
  std::string end;
  std::thread caller([&] { end = Infer(held, &response); });
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(*server_); }));
  EXPECT_EQ(Free({used}).bytes(), 4000);
  EXPECT_EQ(UsedBytes(), 4000);
  gate.Open();
  caller.join();
  EXPECT_EQ(end, "0: ");
  ASSERT_EQ(response.raw_output_contents_size(), 1);
  EXPECT_TRUE(response.raw_output_contents(0) == tensor.data());
  EXPECT_TRUE(Eventually([&] { return UsedBytes() == 0; }));
}

TEST_F(PutGetTest, AHandleThatEndedTellsWhy) {
  Start({"--resident_mib=1"});
  const v1::Tensor small = FloatTensor(100);
  const std::string freed = Put(small).handle();
  v1::PutHeader short_lived;
  short_lived.set_ttl_ns(50'000'000);
  const std::string expired = Put(small, short_lived).handle();
  v1::PutHeader evictable;
  evictable.set_evictable(true);
  const v1::Tensor half = FloatTensor(150'000);
  const std::string evicted = Put(half, evictable).handle();
  EXPECT_EQ(Free({freed, "abc"}).bytes(), 400);
  ASSERT_TRUE(Eventually([&] { return Ended("expired") == 1; }));
  Put(half);
  const std::string unknown = freed.substr(0, 8) + std::string(32, '0');
  const std::string older = "00000000" + std::string(32, '0');
  v1::ExecuteRequest request = Request("fused", {});
  (*request.mutable_attributes())["expression"].set_string_value("x0 + x1 + x2 + x3 + x4 + x5");
  for (const std::string& handle : {freed, expired, evicted, unknown, older, std::string("x y,\n")})
    *request.add_inputs() = Handle(handle);
  const Reply reply = Run(request);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(lost_, absl::StrCat(freed, " freed,", expired, " expired,", evicted, " evicted,",
                                unknown, " unknown,", older, " lost,? unknown"));
  EXPECT_EQ(Ended("freed"), 1);
  EXPECT_EQ(Ended("evicted"), 1);
  EXPECT_EQ(Get("").data(), "3: handle is empty");
  EXPECT_EQ(Get(freed).data(), absl::StrCat("5: a tensor is not on the server: ", freed, " freed"));
  const v1::FreeResponse again = Free({freed});
  ASSERT_EQ(again.unknown_size(), 1);
  EXPECT_EQ(again.unknown(0), freed);
}

TEST_F(PutGetTest, NeitherTimeNorFreeTakesATensorFromAJob) {
  Start({"--test_fault_injection", "--resident_ttl_seconds=4"});
  const v1::Tensor tensor = FloatTensor(1000);
  const std::string used = Put(tensor).handle();
  Gate gate;
  v1::ExecuteRequest held = gate.HeldRequest(1000);
  *held.mutable_inputs(0) = Handle(used);
  Reply reply;
  std::thread caller([&] { reply = Execute(channel_, held); });
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(*server_); }));
  // For longer than its time to live the job has it, and then it has no name.
  std::this_thread::sleep_for(std::chrono::milliseconds(4500));
  EXPECT_THAT(List(), SizeIs(1));
  EXPECT_EQ(Free({used}).bytes(), 4000);
  EXPECT_EQ(UsedBytes(), 4000);
  gate.Open();
  caller.join();
  EXPECT_EQ(reply.CodeAndMessage(), "0: ");
  EXPECT_TRUE(reply.response.outputs_size() == 1 &&
              reply.response.outputs(0).data() == tensor.data());
  EXPECT_TRUE(Eventually([&] { return UsedBytes() == 0; }));
}

TEST_F(PutGetTest, WhoHasAnAnswerFindsTheRoomThatItLeaves) {
  Start({"--resident_mib=1"});
  const v1::Tensor whole = FloatTensor(kMib / 4);
  v1::PutHeader evictable;
  evictable.set_evictable(true);
  for (int i = 0; i < 40; ++i) {
    const std::string freed = Put(whole).handle();
    EXPECT_EQ(Run(Request("gelu", {Handle(freed)})).CodeAndMessage(), "0: ");
    EXPECT_EQ(Free({freed}).bytes(), static_cast<int64_t>(kMib));
    const std::string evicted = Put(whole, evictable).handle();
    EXPECT_EQ(Run(Request("gelu", {Handle(evicted)})).CodeAndMessage(), "0: ");
    const std::string half = Put(FloatTensor(kMib / 8)).handle();
    v1::ExecuteRequest keeping = Request("gelu", {Handle(half)});
    keeping.set_keep_outputs(true);
    const Reply kept = Run(keeping);
    ASSERT_EQ(kept.CodeAndMessage(), "0: ");
    EXPECT_EQ(Free({half, kept.response.outputs(0).handle()}).bytes(), static_cast<int64_t>(kMib));
  }
  EXPECT_EQ(Ended("evicted"), 40);
}

TEST_F(PutGetTest, ADigestIsAQuestionOrAPromise) {
  // Of FIPS 180-4's examples.
  ASSERT_EQ(absl::BytesToHexString(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Start({});
  const v1::Tensor tensor = FloatTensor(3'000'000);
  v1::PutHeader header;
  *header.mutable_tensor() = WithoutData(tensor);
  header.set_sha256(Sha256Of(tensor.data()));
  EXPECT_THAT(PutRefused(header), HasSubstr("5: no float32[3000000] of this caller has sha256"));
  const v1::PutResponse first = Put(tensor, header, true);
  EXPECT_FALSE(first.existed());
  // The question, and the bytes once more.
  for (const bool with_bytes : {false, true}) {
    Putting put(stub_.get());
    put.Send(header);
    if (with_bytes) put.SendAll(tensor.data());
    ASSERT_EQ(CodeAndMessage(put.Finish()), "0: ");
    EXPECT_TRUE(put.response.existed());
    EXPECT_NE(put.response.handle(), first.handle());
    EXPECT_TRUE(Eventually([&] { return UsedBytes() == 12'000'000; }));
  }
  EXPECT_EQ(Free({first.handle()}).bytes(), 0);
  EXPECT_THAT(List(), SizeIs(2));
  EXPECT_EQ(Free({List()[0].handle(), List()[1].handle()}).bytes(), 12'000'000);
  EXPECT_EQ(UsedBytes(), 0);
  // Bytes of another digest leave nothing.
  Putting wrong(stub_.get());
  wrong.Send(header);
  wrong.SendAll(std::string(tensor.data().size(), 'x'));
  EXPECT_THAT(CodeAndMessage(wrong.Finish()), HasSubstr("3: sha256 is "));
  EXPECT_THAT(List(), SizeIs(0));
  EXPECT_TRUE(Eventually([&] { return UsedBytes() == 0; }));
}

TEST_F(PutGetTest, ListTellsWhatThereIs) {
  Start({});
  v1::PutHeader header;
  header.set_label("w1");
  header.set_evictable(true);
  header.set_ttl_ns(100'000'000'000);
  const v1::PutResponse put = Put(FloatTensor({2, 3}, {1, 2, 3, 4, 5, 6}), header);
  Put(FloatTensor(1));
  Run(Request("gelu", {Handle(put.handle())}));
  const std::vector<v1::TensorInfo> listed = List();
  ASSERT_THAT(listed, SizeIs(2));
  EXPECT_EQ(listed[0].handle(), put.handle());
  EXPECT_EQ(listed[0].label(), "w1");
  EXPECT_EQ(listed[0].device(), "cpu");
  EXPECT_EQ(listed[0].data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_EQ(listed[0].shape_size(), 2);
  EXPECT_EQ(listed[0].bytes(), 24);
  EXPECT_EQ(listed[0].uses(), 1);
  EXPECT_TRUE(listed[0].evictable());
  EXPECT_GE(listed[0].expires_unix_ns(), put.expires_unix_ns());
  EXPECT_LT(listed[0].created_unix_ns(), listed[0].expires_unix_ns());
  EXPECT_LT(listed[0].expires_unix_ns(), listed[1].expires_unix_ns());
}

TEST_F(PutGetTest, BadInputIsRefusedWithValueAndLimit) {
  Start({"--resident_mib=1"});
  const v1::Tensor tensor = FloatTensor(100);
  const std::string handle = Put(tensor).handle();
  const auto run = [&](v1::Tensor input) { return Run(Request("gelu", {input})).CodeAndMessage(); };
  v1::Tensor both = tensor;
  both.set_handle(handle);
  EXPECT_EQ(run(both), "3: input 0 has both a handle and 400 bytes of data");
  v1::Tensor reshaped = Handle(handle);
  reshaped.set_data_type(v1::DATA_TYPE_FLOAT32);
  reshaped.add_shape(50);
  EXPECT_EQ(run(reshaped),
            "3: input 0 is float32[50], but the tensor of its handle is float32[100]");
  reshaped.set_shape(0, 100);
  reshaped.set_data_type(static_cast<v1::DataType>(257));  // its lowest byte is float32's number
  EXPECT_EQ(run(reshaped),
            "3: input 0: data type 257 is unknown; known: 1 (float32), 2 (float16), 3 (bfloat16)");
  v1::ExecuteRequest elsewhere = Request("gelu", {Handle(handle)});
  elsewhere.set_device("cuda:0");
  EXPECT_EQ(Run(elsewhere).CodeAndMessage(),
            "3: input 0 is on cpu, but the request asks for cuda:0");
  v1::ExecuteRequest keeps = Request("gelu", {tensor});
  keeps.set_keep_outputs(true);
  keeps.set_keep_ttl_ns(-1);
  EXPECT_THAT(Run(keeps).CodeAndMessage(), HasSubstr("3: ttl_ns is -1"));
  keeps = Request("gelu", {FloatTensor(300'000)});
  keeps.set_keep_outputs(true);
  EXPECT_EQ(Run(keeps).CodeAndMessage(),
            "8: the tensor has 1200000 bytes; the limit is 1048576 (resident_mib)");
}

TEST_F(PutGetTest, APutThatCannotBeIsRefusedAtItsHeader) {
  Start({"--resident_mib=1", "--resident_ttl_seconds_max=3600"});
  const v1::Tensor tensor = FloatTensor(100);
  const std::string handle = Put(tensor).handle();
  v1::PutHeader header;
  *header.mutable_tensor() = tensor;
  const auto refused = [&](const std::function<void(v1::PutHeader*)>& change) {
    v1::PutHeader changed = header;
    change(&changed);
    return PutRefused(changed);
  };
  EXPECT_THAT(refused([](auto* h) { h->set_ttl_ns(3'601'000'000'000); }),
              HasSubstr("the limit is 3600 s (resident_ttl_seconds_max)"));
  EXPECT_EQ(refused([](auto* h) { h->set_label(std::string(257, 'x')); }),
            "3: label has 257 bytes; the limit is 256");
  EXPECT_EQ(refused([](auto* h) { h->set_sha256("abc"); }),
            "3: sha256 has 3 bytes; it takes 32 or none");
  EXPECT_EQ(refused([](auto* h) { h->mutable_tensor()->mutable_data()->append("x"); }),
            "3: the tensor has 401 bytes of data in the header, but float32[100] takes 400");
  EXPECT_THAT(refused([](auto* h) { h->mutable_tensor()->set_data_type(v1::DataType(9)); }),
              HasSubstr("3: the tensor: data type 9 is unknown"));
  EXPECT_THAT(refused([](auto* h) { h->mutable_tensor()->set_shape(0, -1); }), HasSubstr("3: "));
  EXPECT_THAT(refused([&](auto* h) { h->mutable_tensor()->set_handle(handle); }),
              HasSubstr("3: the tensor has a handle"));
  EXPECT_THAT(refused([](auto* h) { h->set_device("cuda:7"); }), HasSubstr("5: "));
  EXPECT_EQ(refused([](auto* h) { *h->mutable_tensor() = WithoutData(FloatTensor(300'000)); }),
            "8: the tensor has 1200000 bytes; the limit is 1048576 (resident_mib)");
  const std::string full = Put(FloatTensor(200'000)).handle();
  EXPECT_THAT(refused([](auto* h) { *h->mutable_tensor() = WithoutData(FloatTensor(200'000)); }),
              HasSubstr("8: the tensor has 800000 bytes, and tensors hold 800400 of 1048576 "
                        "(resident_mib); the next on cpu expires in "));
  Free({full});
}

TEST_F(PutGetTest, WhatDoesNotComeAsItWasDeclaredLeavesNothing) {
  Start({});
  const v1::Tensor tensor = FloatTensor(100);
  Put(tensor);
  v1::PutHeader header;
  const auto sent = [&](const std::function<void(Putting*)>& send) {
    Putting put(stub_.get());
    send(&put);
    return CodeAndMessage(put.Finish());
  };
  *header.mutable_tensor() = WithoutData(tensor);
  EXPECT_EQ(sent([](Putting*) {}), "3: the call ended before its header");
  EXPECT_EQ(sent([](Putting* p) { p->SendChunk(0, "abcd"); }), "3: a chunk came before the header");
  EXPECT_EQ(sent([&](Putting* p) {
              p->Send(header);
              p->Send(header);
            }),
            "3: the header came a second time");
  EXPECT_THAT(sent([&](Putting* p) { p->Send(header); }), HasSubstr("lacks byte 0 of 400"));
  EXPECT_THAT(sent([&](Putting* p) {
                p->Send(header);
                p->SendChunk(0, std::string(404, 'x'));
              }),
              HasSubstr("does not lie in the tensor's 400 bytes"));
  EXPECT_THAT(sent([&](Putting* p) {
                p->Send(header);
                p->SendChunk(0, std::string(8, 'x'));
                p->SendChunk(4, std::string(8, 'x'));
              }),
              HasSubstr("come in part or whole for the second time"));
  EXPECT_THAT(sent([&](Putting* p) {
                p->Send(header);
                p->SendChunk(0, std::string(8, 'x'), 1);
              }),
              HasSubstr("a chunk is for input 1"));
  {
    Putting cut(stub_.get());
    cut.Send(header);
    cut.SendChunk(0, std::string(8, 'x'));
    cut.context.TryCancel();
    cut.writer->Finish();
  }
  EXPECT_TRUE(Eventually([&] { return UsedBytes() == 400; }));
  EXPECT_THAT(List(), SizeIs(1));
}

TEST_F(PutGetTest, AClientThatSendsNothingMoreKeepsNoMemory) {
  Start({"--send_seconds=1"});
  v1::PutHeader header;
  *header.mutable_tensor() = WithoutData(FloatTensor(100));
  Putting stalled(stub_.get());
  stalled.Send(header);
  stalled.SendChunk(0, std::string(8, 'x'));
  EXPECT_EQ(CodeAndMessage(stalled.writer->Finish()),
            "8: no byte of the tensor came in 1 s (send_seconds), after 8 of 400");
  EXPECT_TRUE(Eventually([&] { return UsedBytes() == 0; }));
}

TEST_F(PutGetTest, EachNamedCallerHasItsOwn) {
  const std::string folder = ::testing::TempDir();
  const std::string tokens = absl::StrCat(folder, "/put-get-tokens-", getpid());
  const std::string policies = absl::StrCat(folder, "/put-get-policies-", getpid());
  const auto write = [](const std::string& path, const std::string& text) {
    FILE* const file = fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    fputs(text.c_str(), file);
    fclose(file);
  };
  write(tokens, "alice " + std::string(32, 'a') + "\nbob " + std::string(32, 'b') + "\n");
  write(policies, R"({"principals": {"alice": {"kernels": ["gelu"]},
                                     "bob": {"resident_bytes_max": 1000}}})");
  Start({"--token_file=" + tokens, "--policy_file=" + policies});
  const auto put = [&](char who, int64_t elements) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + std::string(32, who));
    v1::PutResponse response;
    const auto writer = stub_->Put(&context, &response);
    v1::PutRequest request;
    *request.mutable_header()->mutable_tensor() = FloatTensor(elements);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return status.ok() ? response.handle() : CodeAndMessage(status);
  };
  const auto run = [&](char who, const std::string& handle) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + std::string(32, who));
    v1::ExecuteResponse response;
    return CodeAndMessage(stub_->Execute(&context, Request("gelu", {Handle(handle)}), &response));
  };
  const auto infer = [&](char who, const std::string& handle) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + std::string(32, who));
    inference::ModelInferResponse response;
    return CodeAndMessage(inference::GRPCInferenceService::NewStub(channel_)->ModelInfer(
        &context, Inference("gelu", "x", handle), &response));
  };
  const std::string of_alice = put('a', 100);
  EXPECT_THAT(of_alice, SizeIs(40));  // though she may not use identity
  EXPECT_EQ(run('a', of_alice), "0: ");
  EXPECT_EQ(run('b', of_alice),
            absl::StrCat("5: a tensor is not on the server: ", of_alice, " unknown"));
  EXPECT_EQ(infer('b', of_alice),
            absl::StrCat("5: a tensor is not on the server: ", of_alice, " unknown"));
  EXPECT_EQ(infer('a', of_alice), "0: ");
  EXPECT_THAT(put('b', 200), SizeIs(40));
  EXPECT_THAT(put('b', 200), HasSubstr("tensors hold 800 of 1000 (resident_bytes_max)"));
  EXPECT_EQ(put('b', 300), "8: the tensor has 1200 bytes; the limit is 1000 (resident_bytes_max)");
  unlink(tokens.c_str());
  unlink(policies.c_str());
}

// 256 MiB more than the messages' share of the memory sum are no reason to end calls.
TEST_F(PutGetTest, TensorsThatStayTakeNoMemoryFromMessages) {
  if (ProgramsAreSanitized()) GTEST_SKIP() << "the server takes more memory for itself";
  Start({"--staging_mib=64", "--queue_mib=16", "--reception_mib=64", "--max_message_mib=4"});
  v1::PutHeader header;
  header.mutable_tensor()->set_data_type(v1::DATA_TYPE_FLOAT32);
  header.mutable_tensor()->add_shape(64 * kMib);
  Putting put(stub_.get());
  put.Send(header);
  put.SendAll(std::string(256 * kMib, '\1'));
  ASSERT_TRUE(put.Finish().ok());
  EXPECT_GT(server_->ResidentBytes(), static_cast<int64_t>(256 * kMib));
  EXPECT_EQ(Get(put.response.handle()).data().size(), 256u * kMib);
  EXPECT_THAT(server_->log(), Not(HasSubstr("memory is over its limit")));
}

TEST_F(PutGetTest, AnAnswerThatNobodyGotLeavesNothing) {
  Start({"--test_fault_injection"});
  Gate gate;
  v1::ExecuteRequest held = gate.HeldRequest(1000);
  held.set_keep_outputs(true);
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  std::thread caller([&] { stub_->Execute(&context, held, &response); });
  ASSERT_TRUE(Eventually([&] { return UsedBytes() == 4000; }));
  context.TryCancel();
  caller.join();
  // The server reads a connection in order: once it answers this call, it knows of the cancel.
  EXPECT_THAT(List(), SizeIs(0));
  gate.Open();
  EXPECT_TRUE(Eventually([&] { return UsedBytes() == 0; }));
  EXPECT_THAT(List(), SizeIs(0));
}

}  // namespace
}  // namespace warpcall::testing
