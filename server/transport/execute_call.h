// One Execute call from its first byte to its last: decode, submit, answer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "server/transport/codec.h"
#include "server/transport/handover.h"
#include "server/transport/request.h"

namespace warpcall {

// Owned by gRPC: deletes itself when the call is over. Every path ends in Finish, which counts the
// call once.
class ExecuteCall final : public grpc::ServerUnaryReactor {
 public:
  // Decodes and submits on gRPC's thread; the lane that takes the job answers.
  static ExecuteCall* Start(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                            const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

  void OnCancel() override;
  void OnDone() override {
    handover_.Take();
    delete this;
  }
  // gRPC hands OnDone and OnCancel to a thread of its own unless they are known not to block:
  // ours do not, and waking that thread for each call took a tenth of the server's time. Marked
  // internal in gRPC's header: look again when gRPC is exchanged.
  bool InternalInlineable() override { return true; }

 private:
  ExecuteCall(ExecuteDeps* deps, grpc::CallbackServerContext* context,
              const grpc::ByteBuffer* message, grpc::ByteBuffer* response);
  ~ExecuteCall() override { deps_->open_calls.fetch_sub(1); }

  absl::Status CheckMessage();
  absl::Status Submit();
  absl::StatusOr<std::unique_ptr<Job>> MakeJob();
  void Answer(absl::Status status, StagingBuffers outputs);
  void Finish(const absl::Status& status);

  ExecuteDeps* const deps_;
  grpc::ByteBuffer* const message_;  // ours to clear: gRPC would keep it until OnDone
  grpc::ByteBuffer* const response_;
  DecodedRequest decoded_;
  Request request_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int> device_{-1};  // where the job was submitted; read by OnCancel
  Handover handover_;
};

}  // namespace warpcall
