// One ModelStreamInfer call: each message is a request of its own, several are under way at a time,
// and they are answered in the order in which they came.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "server/transport/call.h"
#include "server/transport/handover.h"
#include "server/transport/inference/infer_codec.h"
#include "server/transport/open_streams.h"
#include "server/transport/strand.h"
#include "server/transport/watched_reactors.h"

namespace warpcall::oip {

// Owned by gRPC: deletes itself when the call is over. Everything happens in the strand's events;
// one read and one write are outstanding at most. Reading stops while kItemsMax requests are not
// answered, so gRPC's flow control holds a client back that sends faster than it reads.
class InferStreamCall final : public WatchedBidi, private OpenStream {
 public:
  InferStreamCall(ExecuteDeps* deps, Door* door, grpc::CallbackServerContext* context);

  void OnReadDone(bool ok) override;
  void OnCancel() override;

 private:
  // A request from its message to its answer.
  struct Item {
    grpc::ByteBuffer message;
    grpc::ByteBuffer response;
    const InferCodec* codec = nullptr;  // the call's
    std::unique_ptr<Call> call;
    std::optional<absl::Status> ended;
  };

  ~InferStreamCall() override { deps_->open_calls.fetch_sub(1); }
  void OnWritten(bool ok) override;
  void OnOver() override;
  void Hold() override { holders_.fetch_add(1); }
  void EndAndRelease(const absl::Status& status) override;
  void Release();

  void StartItem();
  // Does what can be done by now: answers, reads, ends.
  void Advance();
  void WriteNext();
  // The stream ends with `status` as soon as nothing is under way, and nothing more is answered.
  void Fail(const absl::Status& status);
  void EndIfIdle();

  ExecuteDeps* const deps_;
  Door* const door_;
  grpc::CallbackServerContext* const context_;
  std::atomic<int> holders_{1};  // gRPC, until OnDone
  Handover handover_;
  Strand strand_;

  // With the metadata "triton_grpc_error: true": the first request that fails ends the stream.
  bool ends_with_error_ = false;
  grpc::ByteBuffer incoming_;
  bool reading_ = false;
  bool input_ended_ = false;
  std::deque<std::unique_ptr<Item>> items_;
  grpc::ByteBuffer outgoing_;
  bool writing_ = false;
  std::optional<absl::Status> failure_;
  bool finished_ = false;
};

}  // namespace warpcall::oip
