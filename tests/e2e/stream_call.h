// ExecuteStream by gRPC's own stub: a test sends and reads messages as it likes.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "warpcall/v1/warpcall.grpc.pb.h"

namespace warpcall::testing {

inline v1::ExecuteStreamRequest Header(const std::string& kernel, const std::vector<int64_t>& shape,
                                       v1::DataType type = v1::DATA_TYPE_FLOAT32) {
  v1::ExecuteStreamRequest message;
  message.mutable_header()->set_kernel(kernel);
  v1::Tensor* input = message.mutable_header()->add_inputs();
  input->set_data_type(type);
  for (const int64_t dim : shape) input->add_shape(dim);
  return message;
}

inline v1::ExecuteStreamRequest ChunkOf(int64_t offset, const std::string& data, int input = 0) {
  v1::ExecuteStreamRequest message;
  message.mutable_chunk()->set_input_index(input);
  message.mutable_chunk()->set_offset(offset);
  message.mutable_chunk()->set_data(data);
  return message;
}

// Response to one request.
struct Answer {
  v1::ExecuteResponse header;
  v1::ExecuteResponse done;
  std::string output;
  int64_t received_bytes = 0;
};

// One call of ExecuteStream, message by message.
class Stream {
 public:
  // `timeout` as in "2S"; the client itself waits on, so that it is the server that ends the call.
  explicit Stream(const ServerProcess& server, const char* timeout = nullptr)
      : stub_(v1::KernelService::NewStub(Connect(server.address()))) {
    if (timeout != nullptr) context_.AddMetadata("grpc-timeout", timeout);
    stream_ = stub_->ExecuteStream(&context_);
  }

  bool Send(const v1::ExecuteStreamRequest& message) { return stream_->Write(message); }
  void CloseInput() { stream_->WritesDone(); }
  // `data` from byte `begin` on to `end`.
  void SendChunks(const std::string& data, size_t begin, size_t end, size_t chunk_bytes) {
    for (size_t at = begin; at < end; at += chunk_bytes)
      Send(ChunkOf(static_cast<int64_t>(at), data.substr(at, chunk_bytes)));
  }
  grpc::Status Finish() { return stream_->Finish(); }
  // Expects that nothing is computed.
  grpc::Status AwaitRefusal() {
    Answer answer;
    EXPECT_FALSE(Receive(&answer));
    return Finish();
  }
  void Cancel() { context_.TryCancel(); }
  std::string Pushback() const { return PushbackOf(context_); }
  bool Receive(v1::ExecuteStreamResponse* message) { return stream_->Read(message); }

  // Up to `done`; false when the stream ended before.
  bool Receive(Answer* answer) {
    v1::ExecuteStreamResponse message;
    while (stream_->Read(&message)) {
      if (message.has_header()) answer->header = message.header();
      if (message.has_done()) {
        answer->done = message.done();
        return true;
      }
      if (!message.has_chunk()) continue;
      const v1::Chunk& chunk = message.chunk();
      EXPECT_LE(chunk.data().size(), 4 * kMib - 1024);
      const size_t end = static_cast<size_t>(chunk.offset()) + chunk.data().size();
      if (answer->output.size() < end) answer->output.resize(end);
      answer->output.replace(static_cast<size_t>(chunk.offset()), chunk.data().size(),
                             chunk.data());
      answer->received_bytes += static_cast<int64_t>(chunk.data().size());
    }
    return false;
  }

 private:
  std::unique_ptr<v1::KernelService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteStreamRequest, v1::ExecuteStreamResponse>>
      stream_;
};

}  // namespace warpcall::testing
