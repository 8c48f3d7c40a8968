// One Benchmark or Profile call: checked, queued with the inspector, answered with what its child
// process said.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/inspect/inspector.h"
#include "server/transport/request.h"

namespace warpcall {

// Owned by gRPC: deletes itself when the call is over.
class InspectCall final : public grpc::ServerUnaryReactor {
 public:
  static InspectCall* Start(ExecuteDeps* deps, inspect::Kind kind,
                            grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                            grpc::ByteBuffer* response);

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  InspectCall(ExecuteDeps* deps, inspect::Kind kind, grpc::CallbackServerContext* context,
              grpc::ByteBuffer* response);
  ~InspectCall() override { deps_->open_calls.fetch_sub(1); }

  absl::Status Submit(grpc::ByteBuffer* message);
  absl::StatusOr<inspect::Inquiry> Read(grpc::ByteBuffer* message);
  void Answer(absl::StatusOr<std::string> bytes);
  void NoteFindings(const std::string& bytes);
  void Finish(const absl::Status& status);

  ExecuteDeps* const deps_;
  const inspect::Kind kind_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const int64_t start_ns_;
  const uint64_t id_;
  grpc::ByteBuffer message_;  // of a call that is read when its turn comes
  // What the inquiry was about, for the log and the metrics.
  std::string request_id_;
  std::string device_;
  int device_index_ = -1;
  int row_ = -1;
  std::atomic<bool> cancelled_{false};
};

}  // namespace warpcall
