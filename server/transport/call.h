// One request that comes in one message, from its first byte to its answer, whichever protocol
// brought it: checked, submitted, answered, counted.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/transport/call_codec.h"
#include "server/transport/request.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

// Every path ends in Finish, which counts the request once.
class Call {
 public:
  // `context` belongs to the gRPC call and outlives this object.
  Call(ExecuteDeps* deps, grpc::CallbackServerContext* context, std::unique_ptr<CallCodec> codec);
  ~Call() { deps_->calls.open.fetch_sub(1); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Checks the caller and the message, which it clears as soon as nobody needs it, and submits the
  // job. `end` is called once, perhaps before this returns, on any thread, and may destroy the
  // call: with how it ended and, when that is OK, the answer in `response`.
  void Start(grpc::ByteBuffer* message, grpc::ByteBuffer* response,
             absl::AnyInvocable<void(const absl::Status&)> end);

  // For the only request of a call.
  void TellId(const absl::Status& status) const { request_.TellId(status); }
  bool keeps_outputs() const { return request_.keeps_outputs(); }
  // Ends tensors that the answer names, which the client has not got.
  void TakeBackOutputs() { request_.TakeBackOutputs(); }

  // Nobody waits for the answer any more. Thread-safe; without effect once it has ended.
  void Cancel();

 private:
  absl::Status CheckMessage();
  // Goes on with a message that has been inflated where it was compressed.
  void HoldAndSubmit(absl::Status status);
  absl::Status Submit();
  absl::StatusOr<std::unique_ptr<Job>> MakeJob();
  // Has the job leave its queue when the request's own time is over; gRPC sees to the call's.
  void SetTimer();
  void Answer(absl::Status status, StagingBuffers outputs);
  void Finish(const absl::Status& status);

  ExecuteDeps* const deps_;
  const std::unique_ptr<CallCodec> codec_;
  Request request_;
  grpc::ByteBuffer* message_ = nullptr;
  grpc::ByteBuffer* response_ = nullptr;
  absl::AnyInvocable<void(const absl::Status&)> end_;
  std::atomic<bool> cancelled_{false};
  // Where the job was submitted; read by Cancel, and by the timer, which may outlive the call.
  const std::shared_ptr<std::atomic<int>> device_ = std::make_shared<std::atomic<int>>(-1);
  std::unique_ptr<grpc::Alarm> timer_;  // null: none
};

// A Call that is a unary method's. Owned by gRPC: deletes itself when the call is over.
class UnaryCall final : public WatchedUnary {
 public:
  // Decodes and submits on gRPC's thread, or a large compressed message on the inflater's. The lane
  // that takes the job answers; a refusal is answered where it arises.
  static UnaryCall* Start(ExecuteDeps* deps, const Unary& unary, std::unique_ptr<CallCodec> codec);

  void OnCancel() override;

 private:
  UnaryCall(ExecuteDeps* deps, const Unary& unary, std::unique_ptr<CallCodec> codec)
      : WatchedUnary(*deps, unary), deps_(*deps), call_(deps, unary.context, std::move(codec)) {
    handover_.Give();
  }
  ~UnaryCall() override {
    if (call_.keeps_outputs() && unary_.context->IsCancelled()) call_.TakeBackOutputs();
  }

  void End(const absl::Status& status);

  const ExecuteDeps& deps_;
  Call call_;
};

}  // namespace warpcall
