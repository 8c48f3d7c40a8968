// One ModelStreamInfer call: each message is a request of its own, several are under way at a time,
// and they are answered in the order in which they came.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "server/transport/call.h"
#include "server/transport/inference/infer_codec.h"
#include "server/transport/watched_reactors.h"

namespace warpcall::oip {

// Reading stops while kItemsMax requests are not answered, so gRPC's flow control holds a client
// back that sends faster than it reads.
class InferStreamCall final : public StreamCall<WatchedBidi> {
 public:
  InferStreamCall(ExecuteDeps* deps, Door* door, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;

 private:
  // A request from its message to its answer.
  struct Item {
    grpc::ByteBuffer message;
    grpc::ByteBuffer response;
    const InferCodec* codec = nullptr;  // the call's
    std::unique_ptr<Call> call;
    std::optional<absl::Status> ended;
  };

  ~InferStreamCall() override = default;
  void Written(bool ok) override;
  // Nothing more is answered.
  void Fail(const absl::Status& status) override;
  // Answers, reads, ends.
  void Advance() override;

  void StartItem();
  void WriteNext();
  void EndIfIdle();

  Door* const door_;

  // With the metadata "triton_grpc_error: true": the first request that fails ends the stream.
  bool ends_with_error_ = false;
  grpc::ByteBuffer incoming_;
  bool reading_ = false;
  bool input_ended_ = false;
  std::deque<std::unique_ptr<Item>> items_;
  grpc::ByteBuffer outgoing_;
  std::optional<absl::Status> failure_;
  bool finished_ = false;
};

}  // namespace warpcall::oip
