// Durations of requests of the Open Inference Protocol, by model. perf_analyzer reads its
// server-side times here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "inference/grpc_service.pb.h"
#include "server/engine/metrics_sink.h"

namespace warpcall::oip {

// Thread-safe; sums since construction. A reading while requests end may include a request in one
// sum and not in another.
class Statistics {
 public:
  explicit Statistics(size_t models) : models_(std::make_unique<OfModel[]>(models)) {}

  // A request of the model has ended. Every one counts as queued, whether it waited or not:
  // perf_analyzer looks for the version whose number of queued requests has grown.
  void Record(size_t model, const RequestTrace& trace, bool succeeded);

  bool IsUsed(size_t model) const { return models_[model].queue.count.load() > 0; }
  // Fills in all fields except name and version.
  void WriteTo(size_t model, inference::ModelStatistics* statistics) const;

 private:
  struct Duration {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> ns{0};
    void Add(int64_t added_ns);
    void WriteTo(inference::StatisticDuration* duration) const;
  };
  struct OfModel {
    Duration success, fail, queue, compute_input, compute_infer, compute_output;
    std::atomic<uint64_t> last_ms{0};
  };

  const std::unique_ptr<OfModel[]> models_;
};

}  // namespace warpcall::oip
