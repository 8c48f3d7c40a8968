// One Benchmark, Profile or Describe call: checked, queued with the inspector, answered with what
// its child process said.
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
  // What gRPC hands to a unary method.
  struct Unary {
    grpc::CallbackServerContext* context;
    const grpc::ByteBuffer* request;
    grpc::ByteBuffer* response;
  };
  static InspectCall* Start(ExecuteDeps* deps, Inspection kind, const Unary& unary);

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  InspectCall(ExecuteDeps* deps, Inspection kind, const Unary& unary);
  ~InspectCall() override { deps_->open_calls.fetch_sub(1); }

  absl::Status Submit(grpc::ByteBuffer* message);
  absl::StatusOr<inspect::Inquiry> Read(grpc::ByteBuffer* message);
  absl::StatusOr<inspect::Inquiry> Check(std::string bytes) const;
  void Answer(absl::StatusOr<std::string> bytes);
  void NoteFindings(const std::string& bytes);
  void Finish(const absl::Status& status);

  ExecuteDeps* const deps_;
  const Inspection kind_;
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
  RejectReason reject_reason_ = RejectReason::kNone;
  std::atomic<bool> cancelled_{false};
};

}  // namespace warpcall
