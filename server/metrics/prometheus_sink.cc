#include "server/metrics/prometheus_sink.h"

#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "prometheus/text_serializer.h"
#include "proto/common/check.h"
#include "server/metrics/compile_metrics.h"
#include "server/metrics/device_metrics.h"
#include "server/metrics/gpu_metrics.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/series_table.h"

namespace warpcall {
namespace {

using Kind = SeriesTable::Kind;
using Appears = SeriesTable::Appears;

// The codes that the server answers with; api and label `code`.
constexpr absl::StatusCode kCodes[] = {
    absl::StatusCode::kOk,
    absl::StatusCode::kInvalidArgument,
    absl::StatusCode::kNotFound,
    absl::StatusCode::kUnimplemented,
    absl::StatusCode::kResourceExhausted,
    absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kCancelled,
    absl::StatusCode::kUnavailable,
    absl::StatusCode::kUnauthenticated,
    absl::StatusCode::kPermissionDenied,
    absl::StatusCode::kInternal,
};
constexpr int kCodeCount = std::size(kCodes);

constexpr int CodeIndex(absl::StatusCode code) {
  for (int i = 0; i < kCodeCount; ++i) {
    if (kCodes[i] == code) return i;
  }
  return CodeIndex(absl::StatusCode::kInternal);
}

// Prometheus sees no increase in the first value of a series, so codes that an alert's rate counts
// are there from the start, and the one that every dashboard shows. A row that runs nowhere here is
// hardly ever asked for.
Appears AppearanceOf(absl::StatusCode code, bool can_run) {
  const bool watched = code == absl::StatusCode::kOk || code == absl::StatusCode::kInternal ||
                       code == absl::StatusCode::kUnavailable;
  return watched && can_run ? Appears::kAtStart : Appears::kWithFirst;
}

struct Phase {
  const char* name;
  int64_t RequestTrace::*ns;
};
constexpr Phase kPhases[] = {
    {"queue", &RequestTrace::queue_ns}, {"copy_in", &RequestTrace::copy_in_ns},
    {"h2d", &RequestTrace::h2d_ns},     {"kernel", &RequestTrace::kernel_ns},
    {"d2h", &RequestTrace::d2h_ns},
};
constexpr int kPhaseCount = std::size(kPhases);
constexpr int kQueuePhase = 0;

constexpr Cell kDurationsStride = kBucketCount + 1;

int DataTypeIndex(DataType type) { return static_cast<int>(type) - 1; }

bool InRange(int id, int count) { return id >= 0 && id < count; }

// An implementation of a kernel, all of its variants, on a device that they are for.
struct Run {
  int kernel;  // Kernel::id
  Family family;
  std::vector<DataType> data_types;
  std::vector<size_t> indices;  // row x devices + device, of each variant
  Labels labels;
};

std::vector<Run> RunsOf(const Registry& registry, absl::Span<const DeviceLabel> devices,
                        absl::FunctionRef<bool(DeviceKind)> wants) {
  std::vector<Run> runs;
  for (const Row& row : registry.rows()) {
    const Implementation& variant = row.implementation;
    for (size_t device = 0; device < devices.size(); ++device) {
      if (devices[device].kind != variant.device_kind || !wants(variant.device_kind)) continue;
      const Labels labels = {{"kernel", registry.kernels()[row.kernel].op->name},
                             {"implementation", FamilyName(variant.family)},
                             {"device", devices[device].name}};
      auto run = absl::c_find_if(runs, [&](const Run& known) { return known.labels == labels; });
      if (run == runs.end())
        run = runs.insert(run, Run{row.kernel, variant.family, {}, {}, labels});
      run->indices.push_back(row.id * devices.size() + device);
      for (const DataType type : variant.data_types)
        if (!absl::c_linear_search(run->data_types, type)) run->data_types.push_back(type);
    }
  }
  return runs;
}

bool AnyKind(DeviceKind) { return true; }

void AppendServerFamilies(const ServerState& state,
                          std::vector<prometheus::MetricFamily>* families) {
  AppendServerPhase(state.phase, families);
  AppendLogLinesDropped(state.log_lines_dropped, families);
  AppendBuildInfo(state.build, families);
  if (const auto stats = ReadProcessStats(); stats.has_value())
    AppendProcessFamilies(*stats, families);
}

// The end of a scrape.
std::string TextOf(const std::vector<prometheus::MetricFamily>& families, MetricsFormat format) {
  const std::string text = prometheus::TextSerializer().Serialize(families);
  return format == MetricsFormat::kOpenMetrics ? ToOpenMetrics(text) + "# EOF\n" : text;
}

}  // namespace

std::string ScrapeWithoutDevices(const ServerState& state, MetricsFormat format) {
  std::vector<prometheus::MetricFamily> families;
  AppendServerFamilies(state, &families);
  return TextOf(families, format);
}

PrometheusSink::PrometheusSink(const Registry& registry, Options options)
    : registry_(registry),
      options_(std::move(options)),
      kernel_count_(static_cast<int>(registry.kernels().size())),
      row_count_(static_cast<int>(registry.rows().size())),
      series_(std::make_unique<SeriesTable>()) {
  AddRequestSeries(registry);
  AddPhaseSeries(registry);
  AddRunSeries(registry);
  AddLaunchSeries(registry);
  AddChoiceSeries(registry);
  AddOtherSeries();
  AddInspectionSeries(registry);
  AddPushSeries();
  series_->Close();
  traffic_.emplace([this] { return CountTraffic(); }, options_.clock);
}

PrometheusSink::~PrometheusSink() = default;

// Pairs of kernel and implementation in the order that Record numbers them in: those of the rows,
// each kernel with "" (no row chosen), and "" with "" (refused before the kernel was known).
void PrometheusSink::AddRequestSeries(const Registry& registry) {
  std::vector<Labels> pairs;
  std::vector<bool> can_run;
  for (const Row& row : registry.rows()) {
    const Labels labels = {{"kernel", registry.kernels()[row.kernel].op->name},
                           {"implementation", FamilyName(row.implementation.family)}};
    const auto pair = static_cast<size_t>(absl::c_find(pairs, labels) - pairs.begin());
    if (pair == pairs.size()) {
      pairs.push_back(labels);
      kernel_of_pair_.push_back(row.kernel);
      can_run.push_back(false);
    }
    pair_of_row_.push_back(static_cast<uint32_t>(pair));
    if (row.availability.is_offered() || row.availability.is_not_tried()) can_run[pair] = true;
  }
  pair_count_ = static_cast<uint32_t>(pairs.size());
  can_run.resize(pairs.size() + registry.kernels().size() + 1, true);
  for (const Kernel& kernel : registry.kernels()) {
    pairs.push_back({{"kernel", kernel.op->name}, {"implementation", ""}});
    kernel_of_pair_.push_back(kernel.id);
  }
  pairs.push_back({{"kernel", ""}, {"implementation", ""}});
  kernel_of_pair_.push_back(kernel_count_);

  series_->BeginFamily(Kind::kCounter, "warpcall_requests_total",
                       "Execute requests answered, by canonical status code.");
  for (size_t pair = 0; pair < pairs.size(); ++pair) {
    for (int code = 0; code < kCodeCount; ++code) {
      Labels labels = pairs[pair];
      labels.push_back({"code", absl::StatusCodeToString(kCodes[code])});
      const Cell cell = series_->AddSeries(labels, AppearanceOf(kCodes[code], can_run[pair]));
      if (pair == 0 && code == 0) requests_ = cell;
    }
  }
  series_->BeginFamily(Kind::kDurations, "warpcall_request_duration_seconds",
                       "Time from a request's receipt to its answer, refused requests included.");
  for (size_t pair = 0; pair < pairs.size(); ++pair) {
    const Cell cell = series_->AddSeries(pairs[pair]);
    if (pair == 0) request_durations_ = cell;
  }
}

void PrometheusSink::AddPhaseSeries(const Registry& registry) {
  series_->BeginFamily(Kind::kDurations, "warpcall_phase_duration_seconds",
                       "Time that requests whose kernel ran spent in each phase.");
  for (const Kernel& kernel : registry.kernels()) {
    for (int phase = 0; phase < kPhaseCount; ++phase) {
      const Cell cell =
          series_->AddSeries({{"kernel", kernel.op->name}, {"phase", kPhases[phase].name}});
      if (kernel.id == 0 && phase == 0) phase_durations_ = cell;
    }
  }
}

void PrometheusSink::SetAll(absl::Span<const size_t> indices, uint32_t RunCells::*cell,
                            uint32_t value) {
  for (const size_t index : indices) runs_[index].*cell = value;
}

void PrometheusSink::AddRunSeries(const Registry& registry) {
  const std::vector<Run> runs = RunsOf(registry, options_.devices, AnyKind);
  const RunCells none = {.durations = {kNoCell, kNoCell, kNoCell},
                         .flops = kNoCell,
                         .bytes = kNoCell,
                         .chosen_by_order = kNoCell,
                         .chosen_as_tuned = kNoCell,
                         .reference_served = kNoCell,
                         .occupancy = kNoCell,
                         .achieved_occupancy = kNoCell,
                         .waves = kNoCell,
                         .wave_efficiency = kNoCell};
  runs_.assign(row_count_ * options_.devices.size(), none);

  series_->BeginFamily(Kind::kDurations, "warpcall_kernel_duration_seconds",
                       "Device time of the kernel alone, by data type of the first input.");
  for (const Run& run : runs) {
    for (const DataType type : run.data_types) {
      Labels labels = run.labels;
      labels.push_back({"data_type", DataTypeName(type)});
      const Cell cell = series_->AddSeries(labels);
      for (const size_t index : run.indices) runs_[index].durations[DataTypeIndex(type)] = cell;
    }
  }
  series_->BeginFamily(Kind::kRealCounter, "warpcall_kernel_flops_total",
                       "Operations of the kernels that ran, by their definition.");
  for (const Run& run : runs) SetAll(run.indices, &RunCells::flops, series_->AddSeries(run.labels));
  series_->BeginFamily(
      Kind::kRealCounter, "warpcall_kernel_bytes_total",
      "Least bytes that the kernels that ran had to move: inputs and outputs once.");
  for (const Run& run : runs) SetAll(run.indices, &RunCells::bytes, series_->AddSeries(run.labels));
}

void PrometheusSink::AddLaunchSeries(const Registry& registry) {
  const std::vector<Run> runs =
      RunsOf(registry, options_.devices, [](DeviceKind kind) { return kind != DeviceKind::kCpu; });
  if (runs.empty()) return;

  series_->BeginFamily(Kind::kGauge, "warpcall_kernel_occupancy_ratio",
                       "Resident warps to the most that fit: theoretical, of the last launch; "
                       "achieved, as the last profile counted it.");
  for (const Run& run : runs) {
    Labels labels = run.labels;
    labels.push_back({"kind", "theoretical"});
    SetAll(run.indices, &RunCells::occupancy, series_->AddSeries(labels, Appears::kWithFirst));
    labels.back().value = "achieved";
    SetAll(run.indices, &RunCells::achieved_occupancy,
           series_->AddSeries(labels, Appears::kWithFirst));
  }
  series_->BeginFamily(Kind::kGauge, "warpcall_kernel_waves",
                       "Rounds in which the last launch's blocks filled the device.");
  for (const Run& run : runs)
    SetAll(run.indices, &RunCells::waves, series_->AddSeries(run.labels, Appears::kWithFirst));
  series_->BeginFamily(Kind::kGauge, "warpcall_kernel_wave_efficiency_ratio",
                       "waves / ceil(waves) of the last launch.");
  for (const Run& run : runs)
    SetAll(run.indices, &RunCells::wave_efficiency,
           series_->AddSeries(run.labels, Appears::kWithFirst));
}

void PrometheusSink::AddChoiceSeries(const Registry& registry) {
  series_->BeginFamily(
      Kind::kCounter, "warpcall_auto_choices_total",
      "Requests that left the choice of an implementation to the server, by the choice and its "
      "reason: the order of preference or measurements of such problems.");
  for (const Run& run : RunsOf(registry, options_.devices, AnyKind)) {
    Labels labels = run.labels;
    labels.push_back({"why", "order"});
    SetAll(run.indices, &RunCells::chosen_by_order,
           series_->AddSeries(labels, Appears::kWithFirst));
    labels.back().value = "tuned";
    SetAll(run.indices, &RunCells::chosen_as_tuned,
           series_->AddSeries(labels, Appears::kWithFirst));
  }
  series_->BeginFamily(
      Kind::kCounter, "warpcall_reference_served_total",
      "Requests that left the choice of an implementation to the server and were computed by "
      "the float64 reference.");
  for (const Kernel& kernel : registry.kernels()) {
    const Cell cell = series_->AddSeries({{"kernel", kernel.op->name}});
    for (const Run& run : RunsOf(registry, options_.devices, AnyKind))
      if (run.family == Family::kReference && run.kernel == kernel.id)
        SetAll(run.indices, &RunCells::reference_served, cell);
  }
}

void PrometheusSink::AddOtherSeries() {
  series_->BeginFamily(Kind::kCounter, "warpcall_rejected_total",
                       "Requests refused by a limit or state before a device worked for them, or "
                       "stopped (run_time); connections that were refused (connections).");
  for (int reason = 1; reason < kRejectReasonCount; ++reason) {
    const Cell cell =
        series_->AddSeries({{"reason", RejectReasonName(static_cast<RejectReason>(reason))}});
    if (reason == 1) rejected_ = cell;
  }
  series_->BeginFamily(Kind::kCounter, "warpcall_host_copy_bytes_total",
                       "Tensor bytes that the host copied between requests and staging.");
  copied_in_ = series_->AddSeries({{"where", "copy_in"}});
  copied_out_ = series_->AddSeries({{"where", "copy_out"}});
  series_->BeginFamily(Kind::kCounter, "warpcall_graph_replays_total",
                       "Graphs that a device replayed as one recording.");
  for (size_t i = 0; i < options_.devices.size(); ++i) {
    const Cell cell = series_->AddSeries({{"device", options_.devices[i].name}});
    if (i == 0) graph_replays_ = cell;
  }
}

void PrometheusSink::AddInspectionSeries(const Registry& registry) {
  series_->BeginFamily(Kind::kCounter, "warpcall_inspections_total",
                       "Benchmark, Profile, Describe, Tune and Push requests answered, by "
                       "canonical status code.");
  for (int kind = 0; kind < kInspectionCount; ++kind) {
    for (int code = 0; code < kCodeCount; ++code) {
      const Cell cell =
          series_->AddSeries({{"method", InspectionName(static_cast<Inspection>(kind))},
                              {"code", absl::StatusCodeToString(kCodes[code])}},
                             code == 0 ? Appears::kAtStart : Appears::kWithFirst);
      if (kind == 0 && code == 0) inspection_counts_ = cell;
    }
  }
  const auto add_seconds = [&](const char* name, const char* help) {
    series_->BeginFamily(Kind::kRealCounter, name, help);
    Cell first = kNoCell;
    for (int kind = 0; kind < kInspectionCount; ++kind) {
      for (const Kernel& kernel : registry.kernels()) {
        const Cell cell =
            series_->AddSeries({{"method", InspectionName(static_cast<Inspection>(kind))},
                                {"kernel", kernel.op->name}});
        if (first == kNoCell) first = cell;
      }
    }
    return first;
  };
  inspection_cpu_ = add_seconds("warpcall_inspection_cpu_seconds_total",
                                "CPU time of the processes of Benchmark, Profile, Describe, Tune "
                                "and Push, counted while they run.");
  inspection_device_ =
      add_seconds("warpcall_inspection_device_seconds_total",
                  "Time of the launches and copies that Benchmark, Tune, Profile and "
                  "Push timed on their devices, counted when they are done.");
}

void PrometheusSink::AddPushSeries() {
  series_->BeginFamily(Kind::kCounter, "warpcall_pushes_total",
                       "Kernels of callers that were judged, by the status of the verdict.");
  for (int finding = 0; finding < kFindingCount; ++finding) {
    const Cell cell = series_->AddSeries({{"status", FindingName(static_cast<Finding>(finding))}},
                                         finding == 0 ? Appears::kAtStart : Appears::kWithFirst);
    if (finding == 0) pushes_ = cell;
  }
  series_->BeginFamily(Kind::kDurations, "warpcall_push_seconds",
                       "Time to compile a pushed kernel for a data type, to check and to time it "
                       "on a problem.");
  for (int stage = 0; stage < kPushStageCount; ++stage) {
    const Cell cell = series_->AddSeries({{"stage", PushStageName(static_cast<PushStage>(stage))}});
    if (stage == 0) push_durations_ = cell;
  }
}

void PrometheusSink::RecordPush(Finding finding) {
  WARPCALL_CHECK(static_cast<int>(finding) < kFindingCount, finding);
  series_->Add(pushes_ + static_cast<uint32_t>(finding), 1);
}

void PrometheusSink::RecordPushStage(PushStage stage, int64_t ns) {
  series_->Observe(push_durations_ + static_cast<uint32_t>(stage) * kDurationsStride, ns);
}

void PrometheusSink::Record(const RequestTrace& trace) {
  uint32_t pair = pair_count_ + kernel_count_;
  if (InRange(trace.row, row_count_)) {
    pair = pair_of_row_[static_cast<size_t>(trace.row)];
  } else if (InRange(trace.kernel, kernel_count_)) {
    pair = pair_count_ + trace.kernel;
  }
  series_->Add(requests_ + pair * kCodeCount + CodeIndex(trace.code), 1);
  Observe(request_durations_ + pair * kDurationsStride, trace.total_ns, trace);

  CountChoice(trace);
  RecordTransfer(trace);
  if (trace.ran) RecordRun(trace);
  if (trace.ran && trace.graph != nullptr && trace.graph->replayed &&
      InRange(trace.device, static_cast<int>(options_.devices.size())))
    series_->Add(graph_replays_ + static_cast<uint32_t>(trace.device), 1);
}

void PrometheusSink::RecordTransfer(const RequestTrace& trace) {
  CountRejection(trace.reject_reason);
  if (trace.copy_in_bytes > 0) series_->Add(copied_in_, trace.copy_in_bytes);
  if (trace.copy_out_bytes > 0) series_->Add(copied_out_, trace.copy_out_bytes);
}

void PrometheusSink::Observe(uint32_t durations, int64_t ns, const RequestTrace& trace) {
  series_->Observe(durations, ns);
  if (trace.trace_id != TraceId())
    series_->KeepExemplar(durations, {trace.trace_id, ns, absl::GetCurrentTimeNanos()});
}

void PrometheusSink::SetAchievedOccupancy(int row, int device, double ratio) {
  const int device_count = static_cast<int>(options_.devices.size());
  if (!InRange(row, row_count_) || !InRange(device, device_count)) return;
  const RunCells& run = runs_[static_cast<size_t>(row) * device_count + device];
  if (run.achieved_occupancy != kNoCell) series_->Set(run.achieved_occupancy, ratio);
}

void PrometheusSink::CountRejection(RejectReason reason) {
  const int index = static_cast<int>(reason);
  WARPCALL_DCHECK(index >= 0 && index < kRejectReasonCount, index);
  if (index > 0 && index < kRejectReasonCount) series_->Add(rejected_ + index - 1, 1);
}

void PrometheusSink::CountChoice(const RequestTrace& trace) {
  const int device_count = static_cast<int>(options_.devices.size());
  if (trace.auto_choice == AutoChoice::kNone || !InRange(trace.row, row_count_) ||
      !InRange(trace.device, device_count))
    return;
  const RunCells& run = runs_[static_cast<size_t>(trace.row) * device_count + trace.device];
  const Cell cell =
      trace.auto_choice == AutoChoice::kTuned ? run.chosen_as_tuned : run.chosen_by_order;
  if (cell != kNoCell) series_->Add(cell, 1);
  if (trace.ran && run.reference_served != kNoCell) series_->Add(run.reference_served, 1);
}

void PrometheusSink::RecordInspection(const InspectionEnd& end) {
  WARPCALL_CHECK(static_cast<int>(end.kind) < kInspectionCount, end.kind);
  series_->Add(
      inspection_counts_ + static_cast<uint32_t>(end.kind) * kCodeCount + CodeIndex(end.code), 1);
  CountRejection(end.reason);
  KeepInspection(end);
}

void PrometheusSink::RecordInspectionUse(const InspectionUse& use) {
  if (!InRange(use.kernel, kernel_count_)) return;
  const auto offset =
      static_cast<uint32_t>(static_cast<int>(use.kind) * kernel_count_ + use.kernel);
  if (use.cpu_ns > 0) series_->AddReal(inspection_cpu_ + offset, use.cpu_ns * 1e-9);
  if (use.device_ns > 0) series_->AddReal(inspection_device_ + offset, use.device_ns * 1e-9);
}

void PrometheusSink::RecordRun(const RequestTrace& trace) {
  if (!InRange(trace.kernel, kernel_count_)) return;
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    Observe(phase_durations_ + (trace.kernel * kPhaseCount + phase) * kDurationsStride,
            trace.*kPhases[phase].ns, trace);
  }
  const int device_count = static_cast<int>(options_.devices.size());
  if (!InRange(trace.row, row_count_) || !InRange(trace.device, device_count)) return;
  const RunCells& run = runs_[static_cast<size_t>(trace.row) * device_count + trace.device];
  WARPCALL_CHECK(InRange(DataTypeIndex(trace.data_type), kDataTypeCount), trace.data_type);
  const Cell durations = run.durations[DataTypeIndex(trace.data_type)];
  if (durations != kNoCell) Observe(durations, trace.kernel_ns, trace);
  if (run.flops != kNoCell) {
    series_->AddReal(run.flops, static_cast<double>(trace.work.flops));
    series_->AddReal(run.bytes, static_cast<double>(trace.work.bytes));
  }
  if (run.waves != kNoCell) {
    const double waves = trace.launch.waves;
    series_->Set(run.occupancy, trace.launch.theoretical_occupancy);
    series_->Set(run.waves, waves);
    series_->Set(run.wave_efficiency, waves > 0 ? waves / std::ceil(waves) : 0);
  }
}

void PrometheusSink::AddDurations(uint32_t durations, DurationCounts* counts) const {
  for (size_t bucket = 0; bucket < counts->size(); ++bucket)
    (*counts)[bucket] += series_->Value(durations + static_cast<uint32_t>(bucket));
}

TrafficHistory::Counts PrometheusSink::CountTraffic() const {
  TrafficHistory::Counts counts(static_cast<size_t>(kernel_count_) + 1);
  for (uint32_t pair = 0; pair < kernel_of_pair_.size(); ++pair) {
    TrafficCounts& kernel = counts[static_cast<size_t>(kernel_of_pair_[pair])];
    AddDurations(request_durations_ + pair * kDurationsStride, &kernel.answered);
    for (int code = 0; code < kCodeCount; ++code)
      if (kCodes[code] != absl::StatusCode::kOk)
        kernel.failed += series_->Value(requests_ + pair * kCodeCount + code);
  }
  for (int kernel = 0; kernel < kernel_count_; ++kernel)
    AddDurations(phase_durations_ + (kernel * kPhaseCount + kQueuePhase) * kDurationsStride,
                 &counts[static_cast<size_t>(kernel)].waited);
  return counts;
}

std::vector<AutoStatus> PrometheusSink::CountAutoChoices() const {
  // All variants of a family have the same cells on a device, and each cell counts once.
  std::set<Cell> counted;
  std::vector<std::map<Family, uint64_t>> requests(static_cast<size_t>(kernel_count_));
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i].chosen_by_order == kNoCell || !counted.insert(runs_[i].chosen_by_order).second)
      continue;
    const Row& row = registry_.rows()[i / options_.devices.size()];
    requests[static_cast<size_t>(row.kernel)][row.implementation.family] +=
        series_->Value(runs_[i].chosen_by_order) + series_->Value(runs_[i].chosen_as_tuned);
  }
  std::vector<AutoStatus> choices;
  for (const Kernel& kernel : registry_.kernels()) {
    AutoStatus& choice = choices.emplace_back();
    for (const auto& [family, count] : requests[static_cast<size_t>(kernel.id)]) {
      choice.of += count;
      if (count > choice.requests) {
        choice.implementation = FamilyName(family);
        choice.requests = count;
      }
    }
    if (choice.requests == 0) choice.implementation = FirstInOrder(kernel);
  }
  return choices;
}

std::string PrometheusSink::Scrape(MetricsFormat format) const {
  std::vector<prometheus::MetricFamily> families;
  AppendDeviceFamilies(options_.devices, options_.snapshot_devices(), &families);
  AppendLeftOut(options_.devices_left_out, &families);
  AppendDeviceErrors(options_.device_errors(), &families);
  AppendRowsUnavailable(registry_, &families);
  AppendCompileFamilies(options_.compile_counts(), options_.compile_cache_bytes(), &families);
  AppendTuningErrors(options_.tuning_errors(), &families);
  AppendGpuFamilies(options_.gpu_readings(), &families);
  AppendAuthRefusals(options_.auth_refusals(), &families);
  AppendPrincipalCalls(options_.principal_calls(), &families);
  AppendReloadFailures(options_.reload_failures(), &families);
  AppendCertificateExpiries(options_.certificate_expiries(), &families);
  AppendSpanFamily(options_.span_counts(), &families);
  AppendServerFamilies({options_.phase(), options_.build, options_.log_lines_dropped()}, &families);
  std::string text;
  text.reserve(text_bytes_.load(std::memory_order_relaxed));
  series_->AppendText(format, &text);
  text += TextOf(families, format);
  // Numbers grow by a few digits from one scrape to the next.
  text_bytes_.store(text.size() + text.size() / 16, std::memory_order_relaxed);
  return text;
}

}  // namespace warpcall
