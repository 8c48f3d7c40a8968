// Execute as any foreign client could send it: bytes in, status and bytes out, nothing checked on
// the way.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {

struct Reply {
  grpc::Status status;
  v1::ExecuteResponse response;
  std::string pushback_ms;   // PushbackOf
  std::string lost_handles;  // LostHandlesOf
  std::string request_id;    // the trailer warpcall-request-id

  std::string CodeAndMessage() const;
};

// After a call's end: the trailer, "" without one.
std::string PushbackOf(const grpc::ClientContext& context);
std::string LostHandlesOf(const grpc::ClientContext& context);

std::shared_ptr<grpc::Channel> Connect(const std::string& address);

Reply CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& message,
              std::chrono::milliseconds timeout = std::chrono::seconds(60));
Reply Execute(const std::shared_ptr<grpc::Channel>& channel, const v1::ExecuteRequest& request);

v1::Tensor FloatTensor(const std::vector<int64_t>& shape, const std::vector<float>& values);
// `elements` values of a sawtooth.
v1::Tensor FloatTensor(int64_t elements);
std::vector<float> Floats(const v1::Tensor& tensor);
v1::ExecuteRequest Request(const std::string& kernel, const std::vector<v1::Tensor>& inputs);
// Some 50 bytes that are answered with 8 MiB: each element is an empty sum.
v1::ExecuteRequest LargeAnswerRequest();

}  // namespace warpcall::testing
