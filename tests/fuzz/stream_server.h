// The parts of a server that an ExecuteStream, an Execute and a Put use, without sockets or
// threads.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/engine/engine.h"
#include "server/engine/metrics_sink.h"
#include "server/transport/codec.h"
#include "server/transport/request.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {

// `message` in slices of sizes that `seed` chooses; 0: in one.
Slices Sliced(absl::string_view message, uint32_t seed);
std::vector<wire::Bytes> BytesOfAll(const Slices& slices);

class StreamServer {
 public:
  static constexpr int64_t kResidentBytesMax = 96 << 10;  // of tensors that stay

  StreamServer();

  ExecuteDeps* deps() { return &deps_; }
  // Sets the job's callbacks, runs the job and returns its output's bytes; none if it stays.
  absl::StatusOr<std::string> Run(std::unique_ptr<Job> job);
  // Runs the request as Execute does: its output's bytes.
  absl::StatusOr<std::string> Execute(const v1::ExecuteRequest& request);

 private:
  class NoMetrics final : public MetricsSink {
    void Record(const RequestTrace&) override {}
    void RecordTransfer(const RequestTrace&) override {}
    void RecordInspection(const InspectionEnd&) override {}
    void RecordInspectionUse(const InspectionUse&) override {}
    void RecordPush(Finding) override {}
    void RecordPushStage(PushStage, int64_t) override {}
    void SetAchievedOccupancy(int, int, double) override {}
    void RecordRefusedConnection() override {}
  };

  absl::StatusOr<std::unique_ptr<Job>> MakeJob(ExecuteCodec* decoded, Request* call);

  Registry registry_;
  NoMetrics metrics_;
  std::unique_ptr<Engine> engine_;
  ExecuteDeps deps_{};
};

}  // namespace warpcall::testing
