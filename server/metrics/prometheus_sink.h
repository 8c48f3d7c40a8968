// Counts requests and renders them, with the state of devices and process, as Prometheus text.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/compiled/counts.h"
#include "kernels/device_properties.h"
#include "kernels/op.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/engine/gpu_reading.h"
#include "server/engine/metrics_sink.h"
#include "server/engine/tuning_cache.h"
#include "server/metrics/access_metrics.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/server_status.h"
#include "server/metrics/text_format.h"
#include "server/metrics/traffic.h"
#include "server/tracing/tracer.h"

namespace warpcall {

class SeriesTable;

struct DeviceLabel {
  std::string name;  // "cpu", "cuda:0"
  DeviceKind kind = DeviceKind::kCpu;
};

// The facts that every server reports, with or without devices.
struct ServerState {
  ServerPhase phase = ServerPhase::kStarting;
  BuildInfo build;
  int64_t log_lines_dropped = 0;
};
std::string ScrapeWithoutDevices(const ServerState& facts, MetricsFormat format);

// Cells for all series that can occur exist from the start: one per kernel, implementation,
// device that it is for, data type and code. Shown from the start are the counters that alerts and
// dashboards use and code="OK"; histograms, gauges of launches, other codes and choices appear with
// their first observation, which keeps an idle server's text short. Record is lock-free and costs
// well under 1 us (tests/bench/metrics_bench.cc). Thread-safe.
class PrometheusSink final : public MetricsSink {
 public:
  struct Options {
    std::vector<DeviceLabel> devices;  // in the engine's order
    // GPUs that could not be opened, and have no number in the engine.
    std::vector<std::string> devices_left_out;
    BuildInfo build;
    // Called by every Scrape, on its thread, as all that follow.
    std::function<ServerPhase()> phase = [] { return ServerPhase::kServing; };
    // Present state of each device, in the order of `devices`; called by every Scrape, on its
    // thread.
    std::function<std::vector<DeviceSnapshot>()> snapshot_devices;
    // How often each error of a device was seen; called as above.
    std::function<std::vector<DeviceErrorCount>()> device_errors = [] {
      return std::vector<DeviceErrorCount>();
    };
    // How often calls were kept out, by reason, came, by principal, and files could not be read
    // again, by flag; called as above.
    std::function<std::vector<LabelledCount>()> auth_refusals = [] {
      return std::vector<LabelledCount>();
    };
    std::function<std::vector<LabelledCount>()> principal_calls = [] {
      return std::vector<LabelledCount>();
    };
    std::function<std::vector<LabelledCount>()> reload_failures = [] {
      return std::vector<LabelledCount>();
    };
    // When the server's certificates end; called as above.
    std::function<std::vector<CertificateExpiry>()> certificate_expiries = [] {
      return std::vector<CertificateExpiry>();
    };
    // Lines of the log that are missing from it; called as above.
    std::function<int64_t()> log_lines_dropped = [] { return int64_t{0}; };
    // Counts of run-time compilations and their disk cache; called as above.
    std::function<compiled::Counts()> compile_counts = [] { return compiled::Counts(); };
    std::function<int64_t()> compile_cache_bytes = [] { return int64_t{0}; };
    // How often the tuning cache's file failed; called as above.
    std::function<TuningCache::Errors()> tuning_errors = [] { return TuningCache::Errors(); };
    // Counts of request spans, sent, dropped and failed; called as above.
    std::function<tracing::Counts()> span_counts = [] { return tracing::Counts(); };
    // Readings of the GPUs; called as above. Returns quickly: gives the previous reading where a
    // new one takes time.
    std::function<std::vector<GpuReading>()> gpu_readings = [] {
      return std::vector<GpuReading>();
    };
    Clock clock = MonotonicNs;  // for the rates of the last minute
  };

  // `registry` outlives it.
  PrometheusSink(const Registry& registry, Options options);
  ~PrometheusSink() override;

  // Ids outside the registry and the list of devices count as unknown. A code that the server has
  // no use for counts as INTERNAL.
  void Record(const RequestTrace& trace) override;
  void RecordTransfer(const RequestTrace& trace) override;
  void RecordInspection(const InspectionEnd& end) override;
  void RecordInspectionUse(const InspectionUse& use) override;
  void RecordPush(Finding finding) override;
  void RecordPushStage(PushStage stage, int64_t ns) override;
  void SetAchievedOccupancy(int row, int device, double ratio) override;
  void RecordRefusedConnection() override { CountRejection(RejectReason::kConnections); }

  // Prometheus' text exposition format 0.0.4, or OpenMetrics 1.0 with the last traced request of
  // each bucket.
  std::string Scrape(MetricsFormat format = MetricsFormat::kPrometheus) const;

  // Keeps the present counts for the rates of the last minute. To be called every
  // TrafficHistory::kPeriod; takes less than a millisecond and waits for nothing.
  void SampleTraffic() { traffic_->Sample(); }
  // Sets devices, kernels and inspections of `status`, as they are now.
  void Describe(ServerStatus* status) const;

 private:
  // Cells of one implementation on one device, shared by all of its variants; kNoCell where no such
  // series exists.
  struct RunCells {
    uint32_t durations[kDataTypeCount];
    uint32_t flops;
    uint32_t bytes;
    uint32_t chosen_by_order;
    uint32_t chosen_as_tuned;
    uint32_t reference_served;  // the kernel's, of its reference alone
    uint32_t occupancy;
    uint32_t achieved_occupancy;
    uint32_t waves;
    uint32_t wave_efficiency;
  };

  void AddRequestSeries(const Registry& registry);
  void AddPhaseSeries(const Registry& registry);
  void AddRunSeries(const Registry& registry);
  void AddLaunchSeries(const Registry& registry);
  void AddChoiceSeries(const Registry& registry);
  void AddOtherSeries();
  void AddInspectionSeries(const Registry& registry);
  void AddPushSeries();

  void SetAll(absl::Span<const size_t> indices, uint32_t RunCells::*cell, uint32_t value);
  // By kernel; the last one stands for requests that were refused before their kernel was known.
  TrafficHistory::Counts CountTraffic() const;
  void AddDurations(uint32_t durations, DurationCounts* counts) const;
  // By kernel.
  std::vector<AutoStatus> CountAutoChoices() const;
  // The implementation that "auto" tries first where nothing was measured; empty: none can run.
  std::string FirstInOrder(const Kernel& kernel) const;

  void Observe(uint32_t durations, int64_t ns, const RequestTrace& trace);
  void KeepInspection(const InspectionEnd& end) ABSL_LOCKS_EXCLUDED(inspections_mutex_);
  void CountRejection(RejectReason reason);
  void CountChoice(const RequestTrace& trace);
  void RecordRun(const RequestTrace& trace);

  const Registry& registry_;
  const Options options_;
  const int kernel_count_;
  const int row_count_;
  const std::unique_ptr<SeriesTable> series_;

  // First cells of runs of cells: see SeriesTable::AddSeries.
  uint32_t requests_ = 0;           // per pair, per code
  uint32_t request_durations_ = 0;  // per pair
  uint32_t phase_durations_ = 0;    // per kernel, per phase
  uint32_t rejected_ = 0;           // per reason but kNone
  uint32_t inspection_counts_ = 0;  // per kind, per code
  uint32_t inspection_cpu_ = 0;     // per kind, per kernel
  uint32_t inspection_device_ = 0;  // per kind, per kernel
  uint32_t pushes_ = 0;             // per finding
  uint32_t push_durations_ = 0;     // per stage
  uint32_t copied_in_ = 0;
  uint32_t copied_out_ = 0;
  uint32_t graph_replays_ = 0;  // of the first device
  std::vector<RunCells> runs_;        // per row, per device
  std::vector<uint32_t> pair_of_row_;
  uint32_t pair_count_ = 0;          // pairs of kernel and implementation
  std::vector<int> kernel_of_pair_;  // of all pairs that Record numbers; kernel_count_: none

  mutable absl::Mutex inspections_mutex_;
  // The last ones, newest first.
  std::deque<RecentInspection> inspections_ ABSL_GUARDED_BY(inspections_mutex_);
  std::optional<TrafficHistory> traffic_;  // set by the constructor, once there are series

  // Bytes to reserve for a scrape: somewhat more than the last scrape took.
  mutable std::atomic<size_t> text_bytes_{0};
};

}  // namespace warpcall
