// Reports the server's load to balancers with its answers.
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

// The server's work so far and its pending work.
struct LoadSample {
  struct OfDevice {
    std::string name;
    bool counts = false;  // serves requests that name no device
    bool healthy = true;
    double busy_seconds = 0;  // since start
    double work_seconds = 0;  // predicted time of its unfinished work
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

// Returns true if balancers count the code as a server error rather than the caller's.
bool IsServersError(absl::StatusCode code);

// Thread-safe.
class LoadReporter {
 public:
  // `engine` outlives it.
  LoadReporter(const Engine* engine, Clock clock);

  // Counts an answer, and adds a report on the last second to its trailers. A caller that was
  // refused access gets no report.
  void Report(absl::StatusCode code, grpc::CallbackServerContext* context);

 private:
  LoadSample Sample() const;
  // Returns an encoded report that is at most 100 ms old.
  std::string Encoded() ABSL_LOCKS_EXCLUDED(mutex_);

  const Engine& engine_;
  const Clock clock_;
  std::atomic<int64_t> replies_{0};
  std::atomic<int64_t> errors_{0};
  absl::Mutex mutex_;
  std::deque<LoadSample> samples_ ABSL_GUARDED_BY(mutex_);  // never empty
  std::string encoded_ ABSL_GUARDED_BY(mutex_);             // from the first and last samples
};

}  // namespace warpcall
