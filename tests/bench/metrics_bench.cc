// Cost of metrics to the thread that answers a request, with a bar of 1 us for all of it, and to
// the thread that is scraped.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/plan.h"
#include "server/engine/clock.h"
#include "server/engine/lane.h"
#include "server/metrics/prometheus_sink.h"
#include "tests/cpu_kernels.h"

namespace warpcall {
namespace {

absl::StatusOr<PlanPtr> NoPlan(const Problem&, const PlanContext&) {
  return absl::UnimplementedError("made up");
}

PrometheusSink* CpuSink() {
  static PrometheusSink* const sink = [] {
    PrometheusSink::Options options;
    options.devices = {{"cpu", DeviceKind::kCpu}};
    options.snapshot_devices = [] { return std::vector<DeviceSnapshot>(1); };
    return new PrometheusSink(testing::CpuKernels(), std::move(options));
  }();
  return sink;
}

// Makes about as many series as a server with one GPU: four kernels of seven rows, a third of them
// on the CPU.
Registry MakeRegistry() {
  static const Op ops[] = {{"identity", "", {"x"}, {}, nullptr, nullptr},
                           {"gelu", "", {"x"}, {}, nullptr, nullptr},
                           {"softmax", "", {"x"}, {}, nullptr, nullptr},
                           {"matmul", "", {"a", "b"}, {}, nullptr, nullptr}};
  static constexpr const char* kNames[] = {"row0", "row1", "row2", "row3", "row4", "row5", "row6"};
  Registry registry;
  for (const Op& op : ops) {
    std::vector<Implementation> rows;
    for (const char* name : kNames) {
      Implementation row = {};
      row.name = name;
      row.device_kind = rows.size() < 2 ? DeviceKind::kCpu : DeviceKind::kCuda;
      row.data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
      row.supports = SupportsAll;
      row.plan = NoPlan;
      rows.push_back(row);
    }
    registry.Add(op, rows);
  }
  return registry;
}

PrometheusSink* SharedSink() {
  static const Registry registry = MakeRegistry();
  static PrometheusSink* const sink = [] {
    PrometheusSink::Options options;
    options.devices = {{"cpu", DeviceKind::kCpu}, {"cuda:0", DeviceKind::kCuda}};
    options.snapshot_devices = [] { return std::vector<DeviceSnapshot>(2); };
    return new PrometheusSink(registry, std::move(options));
  }();
  return sink;
}

// A request that ran, the dearest kind: eight histograms, two work counters, one copy counter,
// three gauges.
void BM_RecordRun(benchmark::State& state) {
  PrometheusSink* const sink = SharedSink();
  RequestTrace trace;
  trace.kernel = 1;
  trace.row = 10;
  trace.device = 1;
  trace.ran = true;
  trace.copy_in_bytes = 4096;
  trace.work = {.bytes = 8192, .flops = 10240};
  trace.launch.waves = 0.5;
  int64_t ns = 0;
  for (auto _ : state) {
    ns = (ns + 7919) & 0xfffff;
    trace.queue_ns = trace.copy_in_ns = trace.h2d_ns = trace.kernel_ns = trace.d2h_ns = ns;
    trace.total_ns = 5 * ns;
    sink->Record(trace);
  }
}
BENCHMARK(BM_RecordRun)->ThreadRange(1, 16)->UseRealTime();

void BM_RecordRefusal(benchmark::State& state) {
  PrometheusSink* const sink = SharedSink();
  RequestTrace trace;
  trace.kernel = 1;
  trace.code = absl::StatusCode::kResourceExhausted;
  trace.reject_reason = RejectReason::kQueueRequests;
  for (auto _ : state) sink->Record(trace);
}
BENCHMARK(BM_RecordRefusal)->ThreadRange(1, 16)->UseRealTime();

// Everything that identity of 64 bytes, carried by its caller, would not do without metrics:
// reading the clock when it comes, is begun, is copied, runs (four milestones and around them) and
// is answered; the busy meter, which reads it twice more; the record.
void BM_AllThatARequestPays(benchmark::State& state) {
  static BusyMeter* const busy = new BusyMeter(MonotonicNs);
  PrometheusSink* const sink = CpuSink();
  const Kernel& identity = **testing::CpuKernels().Find("identity");
  for (auto _ : state) {
    RequestTrace trace;
    trace.kernel = identity.id;
    trace.row = identity.rows[0];
    trace.device = 0;
    const int64_t start_ns = MonotonicNs();
    trace.queue_ns = MonotonicNs() - start_ns;
    busy->Enter();
    const int64_t copy_ns = MonotonicNs();
    trace.copy_in_ns = MonotonicNs() - copy_ns;
    const int64_t device_start_ns = MonotonicNs();
    const int64_t marks_ns[] = {MonotonicNs(), MonotonicNs(), MonotonicNs(), MonotonicNs()};
    trace.h2d_ns = marks_ns[1] - marks_ns[0];
    trace.kernel_ns = marks_ns[2] - marks_ns[1];
    trace.d2h_ns = marks_ns[3] - marks_ns[2];
    trace.device_ns = MonotonicNs() - device_start_ns;
    busy->Leave();
    trace.copy_in_bytes = 64;
    trace.work = {.bytes = 128, .flops = 0};
    trace.ran = true;
    trace.total_ns = MonotonicNs() - start_ns;
    sink->Record(trace);
  }
}
BENCHMARK(BM_AllThatARequestPays)->ThreadRange(1, 4)->UseRealTime();

// Every histogram of the sink has counts of several digits.
void Fill(PrometheusSink* sink, int rows, int devices) {
  RequestTrace trace;
  trace.ran = true;
  trace.work = {.bytes = 8192, .flops = 10240};
  for (int i = 0; i < 200'000; ++i) {
    trace.kernel = i % 4;
    trace.row = i % rows;
    trace.device = i % devices;
    trace.queue_ns = trace.copy_in_ns = trace.kernel_ns = (int64_t{i} * 7919) & 0xfffff;
    trace.total_ns = 4 * trace.kernel_ns;
    sink->Record(trace);
  }
}

void Scrape(benchmark::State& state, const PrometheusSink& sink) {
  size_t bytes = 0;
  for (auto _ : state) bytes = sink.Scrape().size();
  state.counters["bytes"] = static_cast<double>(bytes);
}

void BM_ScrapeOfACpuServer(benchmark::State& state) {
  Fill(CpuSink(), static_cast<int>(testing::CpuKernels().rows().size()), 1);
  Scrape(state, *CpuSink());
}
BENCHMARK(BM_ScrapeOfACpuServer)->Unit(benchmark::kMillisecond);

void BM_ScrapeOfAGpuServer(benchmark::State& state) {
  Fill(SharedSink(), 28, 2);
  Scrape(state, *SharedSink());
}
BENCHMARK(BM_ScrapeOfAGpuServer)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace warpcall
