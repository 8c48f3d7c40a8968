// The common part of Benchmark, Tune, Profile, Describe and Push calls: checks them, queues them
// with the inspector, and answers with their child process's response.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/inspect/inspector.h"
#include "server/transport/grpc_1_51/handover.h"
#include "server/transport/inquiry.h"
#include "server/transport/request.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

class InspectCall {
 public:
  InspectCall(const InspectCall&) = delete;
  InspectCall& operator=(const InspectCall&) = delete;

 protected:
  // `handover`: the reactor's.
  InspectCall(ExecuteDeps* deps, Inspection kind, grpc::CallbackServerContext* context,
              Handover* handover);
  virtual ~InspectCall() = default;

  // Takes a place in the inspector's queue, or answers with the reason why there is none. `message`
  // is the call's.
  void Begin(grpc::ByteBuffer* message);
  // The client has gone.
  void Cancel();

  // Called once, when the call has its place in the queue.
  virtual void SendInitialMetadata() = 0;
  // Called once, last: by Begin if the call got no place in the queue, otherwise on the inspector's
  // thread.
  virtual void Answer(absl::StatusOr<std::string> bytes) = 0;
  // For calls answered in parts: called with each part before the final answer, on the inspector's
  // thread.
  virtual void AnswerPart([[maybe_unused]] std::string bytes) {}

  // Records what `bytes` report about the device, and returns a message that holds `bytes`. Returns
  // the error of CheckMessageBytes if they exceed a message.
  absl::StatusOr<grpc::ByteBuffer> ToMessage(std::string bytes);
  // Counts and logs the call, once. Returns the client's status.
  grpc::Status End(const absl::Status& status);
  bool in_parts_ = false;  // set before Begin

 private:
  absl::Status CheckAccess() const;
  absl::Status CheckMessage(const grpc::ByteBuffer& message);
  // The longest message.
  int64_t MessageBytesMax() const;
  absl::Status Submit(grpc::ByteBuffer* message);
  // Reads message_, and chooses.
  absl::Status Read();
  absl::Status CheckOperands();
  // As inspect::Task::next: where a row refuses and none was named, the next one is asked for.
  absl::StatusOr<inspect::Inquiry> Next(const absl::Status& before);
  // Adds where a push's time went to the DEADLINE_EXCEEDED with which it ends.
  absl::Status LatePush(const absl::Status& status) const;
  // Only a Profile's message may hold tensors.
  bool TakesTensors() const { return kind_ == Inspection::kProfile; }
  // The row is the server's to choose, and another may be where one refuses.
  bool IsOfOneRow() const {
    return kind_ == Inspection::kDescribe || kind_ == Inspection::kProfile;
  }
  const char* method() const;
  void ChargeUse(int64_t cpu_ns);
  void KeepFindings(const std::string& bytes);
  void KeepPushFindings(const std::string& bytes);
  void Record(const absl::Status& status, bool is_logged);
  void LogEnd(const absl::Status& status, LogLevel level);

  ExecuteDeps* const deps_;
  const Inspection kind_;
  grpc::CallbackServerContext* const context_;
  Handover* const handover_;
  Request request_;
  grpc::ByteBuffer message_;
  std::string bytes_;                  // the message's, once it is read
  std::atomic<int> fetches_from_{-1};  // the device that copies them; -1: none does
  bool is_read_ = false;
  int64_t operand_bytes_ = 0;  // that the child makes
  int64_t cpu_ns_ = 0;         // CPU time of its process, as last reported
  int64_t turn_ns_ = 0;        // when the call left the queue; 0: it waits
  int64_t part_ns_ = 0;        // when the last part of a Push's answer came
  v1::PushVerdict verdict_;    // a Push's
  std::atomic<bool> cancelled_{false};
};

// Answered once. Owned by gRPC: deletes itself when the call is over.
class UnaryInspectCall final : public WatchedUnary, private InspectCall {
 public:
  static UnaryInspectCall* Start(ExecuteDeps* deps, Inspection kind, const Unary& unary);

  void OnCancel() override {
    WatchedUnary::handover_.Take();
    Cancel();
  }

 private:
  UnaryInspectCall(ExecuteDeps* deps, Inspection kind, const Unary& unary)
      : WatchedUnary(*deps, unary),
        InspectCall(deps, kind, unary.context, &(WatchedUnary::handover_)),
        deps_(deps) {
    deps->calls.open.fetch_add(1);
  }
  ~UnaryInspectCall() override { deps_->calls.open.fetch_sub(1); }

  void SendInitialMetadata() override { StartSendInitialMetadata(); }
  void Answer(absl::StatusOr<std::string> bytes) override;

  ExecuteDeps* const deps_;
};

}  // namespace warpcall
