// A call whose answer is sent in parts, as they come: BenchmarkStream, Push.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/transport/inspect_call.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

// The inspector bounds what waits to be sent, and ends the call.
class InspectStreamCall final : public StreamCall<WatchedWriter>, private InspectCall {
 public:
  static InspectStreamCall* Start(ExecuteDeps* deps, Inspection kind,
                                  grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request);

 private:
  InspectStreamCall(ExecuteDeps* deps, Inspection kind, grpc::CallbackServerContext* context);

  void Written(bool ok) override {
    if (!ok) waiting_.clear();  // nobody is there to read them
  }
  void Fail(const absl::Status&) override { Cancel(); }
  // Sends the next message, or the end when there is none, unless one is being sent.
  void Advance() override;
  void SendInitialMetadata() override { StartSendInitialMetadata(); }
  void AnswerPart(std::string bytes) override;
  void Answer(absl::StatusOr<std::string> bytes) override;

  std::deque<grpc::ByteBuffer> waiting_;
  grpc::ByteBuffer sent_;
  std::optional<grpc::Status> end_;  // after which nothing comes
};

}  // namespace warpcall
