// One BenchmarkStream call: a Benchmark whose results are sent as they come.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/transport/inspect_call.h"
#include "server/transport/strand.h"
#include "server/transport/watched_reactors.h"

namespace warpcall {

// Owned by gRPC: deletes itself when the call is over. The inspector bounds what waits to be sent.
class BenchmarkStreamCall final : public WatchedWriter, private InspectCall {
 public:
  static BenchmarkStreamCall* Start(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request);

  void OnCancel() override { Cancel(); }

 private:
  BenchmarkStreamCall(ExecuteDeps* deps, grpc::CallbackServerContext* context);

  void OnWritten(bool ok) override;
  void OnOver() override {
    handover_.Take();
    strand_.Post([this] { delete this; });
  }
  void SendInitialMetadata() override { StartSendInitialMetadata(); }
  void AnswerPart(std::string bytes) override;
  void Answer(absl::StatusOr<std::string> bytes) override;
  // Sends the next message, or the end when there is none, unless one is being sent.
  void Advance();

  Strand strand_;
  // The strand's.
  std::deque<grpc::ByteBuffer> waiting_;
  grpc::ByteBuffer sent_;
  bool writing_ = false;
  std::optional<grpc::Status> end_;  // after which nothing comes
};

}  // namespace warpcall
