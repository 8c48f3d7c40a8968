// What the server tells balancers with its answers: how busy it is.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/engine.h"
#include "server/engine/metrics_sink.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace warpcall {

// The metadata key of ORCA's reports (gRFC A51), in the trailers of a call.
inline constexpr char kLoadReportKey[] = "endpoint-load-metrics-bin";

// What a server has done and has to do.
struct LoadSample {
  struct OfDevice {
    std::string name;
    bool counts = false;  // among those that requests get which name no device
    bool healthy = true;
    double busy_seconds = 0;  // since start
    double work_seconds = 0;  // predicted, of what it has taken and not ended
    double memory_used = 0;   // 0 to 1
  };

  int64_t time_ns = 0;
  int64_t replies = 0;
  int64_t errors = 0;
  std::vector<OfDevice> devices = {};
};

// The load from `before` to `after`, which is later and of the same devices.
// application_utilization is the mean share of the time in which the devices that count, and are
// healthy, were busy; 1 when none is. named_metrics has "queue_seconds.DEVICE".
xds::data::orca::v3::OrcaLoadReport MakeLoadReport(const LoadSample& before,
                                                   const LoadSample& after);

// Whether a call that ended so is an error of the server's, to a balancer, and not the caller's.
bool IsServersError(absl::StatusCode code);

// Thread-safe.
class LoadReporter {
 public:
  // `engine` outlives it.
  LoadReporter(const Engine* engine, Clock clock);

  // Counts an answer, and adds a report of the last second to its trailers. Who was not let in
  // learns nothing.
  void Report(absl::StatusCode code, grpc::CallbackServerContext* context);

 private:
  LoadSample Sample() const;
  // Of no more than 100 ms ago, encoded.
  std::string Encoded() ABSL_LOCKS_EXCLUDED(mutex_);

  const Engine& engine_;
  const Clock clock_;
  std::atomic<int64_t> replies_{0};
  std::atomic<int64_t> errors_{0};
  absl::Mutex mutex_;
  std::deque<LoadSample> samples_ ABSL_GUARDED_BY(mutex_);  // never empty
  std::string encoded_ ABSL_GUARDED_BY(mutex_);             // of the first and the last of them
};

}  // namespace warpcall
