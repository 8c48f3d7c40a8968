// A call of one request that is answered by a stream of responses. Internal to the library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/codec/values.h"
#include "client/cpp/rpc/channel.h"

namespace warpcall::client {

// One attempt of such a call.
class ResponseStream final : public StreamHandler {
 public:
  using HandleResponse = absl::FunctionRef<absl::Status(Fragments response)>;

  // `request` and what `handle` refers to outlive the stream.
  ResponseStream(const std::string* request, HandleResponse handle)
      : request_(*request), handle_(handle) {}

  absl::StatusOr<std::vector<Piece>> NextMessage() override {
    if (std::exchange(sent_, true)) return std::vector<Piece>{};
    return std::vector<Piece>{OwnedPiece(request_)};
  }
  absl::Status HandleMessage(Fragments message) override {
    begun_ = true;
    return handle_(message);
  }

  // True once a response came. REQUIRES: no other thread uses the stream.
  bool begun() const { return begun_; }

 private:
  const std::string& request_;
  const HandleResponse handle_;
  bool sent_ = false;   // the sending thread's
  bool begun_ = false;  // the receiving thread's
};

}  // namespace warpcall::client
