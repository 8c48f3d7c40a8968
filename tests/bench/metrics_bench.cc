// What counting one request costs the thread that answers it; the bar is 1 us.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/metrics/prometheus_sink.h"

namespace warpcall {
namespace {

absl::StatusOr<LaunchShape> NoShape(const Problem&, const DeviceProperties&) {
  return LaunchShape();
}

absl::Status NoLaunch(const Problem&, const Operands&, const LaunchContext&) {
  return absl::UnimplementedError("made up");
}

// About as many series as a server with one GPU has: four kernels of seven rows, a third of them on
// the CPU.
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
      row.launch = NoLaunch;
      if (row.device_kind == DeviceKind::kCuda) row.shape = NoShape;
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

void BM_Scrape(benchmark::State& state) {
  const PrometheusSink* const sink = SharedSink();
  size_t bytes = 0;
  for (auto _ : state) bytes = sink->Scrape().size();
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_Scrape)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace warpcall
