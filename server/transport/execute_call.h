// One Execute call from its first byte to its last: decode, submit, answer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kernels/registry.h"
#include "server/engine/engine.h"
#include "server/engine/metrics_sink.h"
#include "server/transport/codec.h"

namespace warpcall {

// What all calls use; outlives them.
struct ExecuteDeps {
  const Registry* registry;
  Engine* engine;
  MetricsSink* metrics;
  Clock clock;
  int64_t message_bytes_max;
  std::atomic<uint64_t> next_id{1};
  std::atomic<int64_t> open_calls{0};  // begun, and their answers not yet sent
};

// Owned by gRPC: deletes itself when the call is over. Every path ends in Finish, which counts the
// call once.
class ExecuteCall final : public grpc::ServerUnaryReactor {
 public:
  // Decodes and submits on gRPC's thread; the lane that takes the job answers.
  static ExecuteCall* Start(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                            const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  ExecuteCall(ExecuteDeps* deps, grpc::CallbackServerContext* context,
              const grpc::ByteBuffer* request, grpc::ByteBuffer* response);
  ~ExecuteCall() override { deps_->open_calls.fetch_sub(1); }

  absl::Status Submit();
  absl::StatusOr<std::unique_ptr<Job>> MakeJob();
  absl::Status CheckSizes(const Job& job);
  void Answer(absl::Status status, StagingBuffers outputs);
  void FillResponse(StagingBuffers outputs);
  void Finish(const absl::Status& status);
  void LogEnd(const absl::Status& status) const;

  ExecuteDeps* const deps_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const request_;  // ours to clear: gRPC would keep it until OnDone
  grpc::ByteBuffer* const response_;
  const int64_t start_ns_;
  const JobKey key_;
  DecodedRequest decoded_;
  std::string request_id_;
  Problem problem_;  // kept for the response once the job has gone
  RequestTrace trace_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int> device_{-1};  // where the job was submitted; read by OnCancel
};

}  // namespace warpcall
