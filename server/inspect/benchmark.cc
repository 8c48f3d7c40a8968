#include "server/inspect/benchmark.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/common/saturate.h"
#include "kernels/common/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#include "server/inspect/operand_sets.h"
#include "server/inspect/reference.h"
#include "server/inspect/row_timer.h"
#include "server/inspect/summary.h"
#include "server/log.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

absl::Status CheckPlan(const BenchmarkPlan& plan) {
  if (plan.warmup_iterations < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("warmup_iterations is ", plan.warmup_iterations, "; it must be 0 or more"));
  if (plan.iterations < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("iterations is ", plan.iterations, "; it must be 1 or more"));
  return absl::OkStatus();
}

// One run on a stream of its own.
class Run {
 public:
  Run(const Registry& registry, Device* device, const BenchmarkPlan& plan,
      const BenchmarkLimits& limits)
      : registry_(registry),
        device_(device),
        plan_(plan),
        limits_(limits),
        candidates_(plan.rows.size()) {
    for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].result.row = plan.rows[i];
  }

  absl::StatusOr<std::vector<BenchmarkResult>> Results() {
    ASSIGN_OR_RETURN(stream_, device_->CreateStream());
    RETURN_IF_ERROR(stream_->BindThread());
    const int64_t set_bytes = OperandLayout(plan_.problem).bytes;
    ASSIGN_OR_RETURN(sets_, OperandSets::Create({.problem = &plan_.problem,
                                                 .seed = plan_.seed,
                                                 .sets = SetsFor(set_bytes, device_->properties())},
                                                device_->properties(), stream_.get(), &pool_));
    const Reference reference({plan_.kernel->op, &plan_.problem, &sets_->host()},
                              limits_.reference_ns_max, &pool_);
    RETURN_IF_ERROR(ForEach([this](Candidate& candidate) { return Admit(candidate); }));
    RETURN_IF_ERROR(ForEach([&](Candidate& candidate) { return Check(reference, candidate); }));
    RETURN_IF_ERROR(ForEach([](Candidate& candidate) {
      return candidate.timer->done() ? absl::OkStatus() : candidate.timer->WarmUp();
    }));
    for (int i = 0; i < plan_.iterations; ++i)
      RETURN_IF_ERROR(ForEach([this](Candidate& candidate) { return Sample(candidate); }));
    return TakeResults();
  }

 private:
  struct Candidate {
    BenchmarkResult result;
    PlanPtr plan;
    std::unique_ptr<RowTimer> timer;
  };

  // Calls `step` for every row that has not failed. Its failure is the row's unless the device is
  // lost.
  absl::Status ForEach(absl::FunctionRef<absl::Status(Candidate&)> step) {
    for (Candidate& candidate : candidates_) {
      if (!candidate.result.status.ok()) continue;
      absl::Status status = step(candidate);
      if (status.ok()) continue;
      stream_->Synchronize().IgnoreError();
      if (!device_->healthy()) return status;
      candidate.timer.reset();
      candidate.result = {.row = candidate.result.row, .status = std::move(status), .shape = {}};
    }
    return absl::OkStatus();
  }

  // A GPU's time is cut into slices of milliseconds between processes, so whoever else uses it gets
  // as much as the sample took. On a CPU the process's priority sees to that.
  absl::Status Sample(Candidate& candidate) {
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(candidate.timer->Sample());
    if (device_->properties().kind != DeviceKind::kCpu) absl::SleepFor(absl::Now() - start);
    return absl::OkStatus();
  }

  // Nothing is timed yet, so the one workspace that all rows share may still grow.
  absl::Status Admit(Candidate& candidate) {
    const Implementation& row = candidate.result.row->implementation;
    RETURN_IF_ERROR(
        registry_.Select(*plan_.kernel, row.name, plan_.problem, device_->properties()).status());
    const auto workspace = [this](size_t bytes) { return Workspace(bytes); };
    ASSIGN_OR_RETURN(candidate.plan,
                     MakePlanOn({stream_.get(), &device_->properties(), &(*sets_)[0], workspace},
                                row, plan_.problem));
    return Workspace(candidate.plan->traits().workspace_bytes).status();
  }

  absl::StatusOr<void*> Workspace(size_t bytes) {
    if (bytes > workspace_.bytes()) {
      // Beside the one there is, which rows admitted before rely on.
      ASSIGN_OR_RETURN(Buffer larger, stream_->AllocateMemory(bytes));
      workspace_ = std::move(larger);
    }
    return workspace_.data();
  }

  absl::Status Check(const Reference& reference, Candidate& candidate) {
    candidate.timer = std::make_unique<RowTimer>(
        candidate.plan, RowTimer::Shared{stream_.get(), &*sets_},
        TimingPlan{plan_.warmup_iterations, plan_.iterations, limits_.row_ns_max},
        workspace_.data());
    RETURN_IF_ERROR(sets_->Poison());
    RETURN_IF_ERROR(candidate.timer->First());
    RETURN_IF_ERROR(sets_->ReadOutputs());
    const OutputError error = reference.Compare(sets_->host().outputs[0]);
    candidate.result.relative_error = error.relative;
    candidate.result.checked_elements = error.elements;
    ASSIGN_OR_RETURN(candidate.result.shape, candidate.plan->shape());
    return absl::OkStatus();
  }

  std::vector<BenchmarkResult> TakeResults() {
    std::vector<BenchmarkResult> results;
    for (Candidate& candidate : candidates_) {
      BenchmarkResult& result = results.emplace_back(std::move(candidate.result));
      if (!result.status.ok()) continue;
      const Summary summary = Summarize(candidate.timer->samples_ns());
      result.iterations = static_cast<int64_t>(candidate.timer->samples_ns().size());
      result.launches_per_iteration = candidate.timer->launches_per_sample();
      result.mean_ns = summary.mean;
      result.median_ns = summary.median;
      result.min_ns = summary.min;
      result.p90_ns = summary.p90;
    }
    return results;
  }

  const Registry& registry_;
  Device* const device_;
  const BenchmarkPlan& plan_;
  const BenchmarkLimits& limits_;
  // The host's cores, for inputs and the reference; idle while rows are timed.
  cpu::ThreadPool pool_{std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  std::unique_ptr<Stream> stream_;
  // Below: given back before the stream goes.
  std::optional<OperandSets> sets_;
  Buffer workspace_;
  std::vector<Candidate> candidates_;
};

}  // namespace

absl::StatusOr<BenchmarkReport> RunBenchmark(const Registry& registry, Device* device,
                                             const BenchmarkPlan& plan,
                                             const BenchmarkLimits& limits) {
  RETURN_IF_ERROR(CheckPlan(plan));
  BenchmarkReport report;
  const absl::StatusOr<double> ceiling = MeasureCopyBandwidth(registry, device);
  if (ceiling.ok()) {
    report.ceiling_bytes_per_second = *ceiling;
  } else if (!device->healthy()) {
    return ceiling.status();
  } else {
    Log(LogLevel::kWarning, "copy bandwidth not measured",
        {{"device", device->properties().name}, {"error", ceiling.status().message()}});
  }
  ASSIGN_OR_RETURN(report.results, Run(registry, device, plan, limits).Results());
  return report;
}

int64_t BenchmarkBytes(const Problem& problem) {
  const int64_t set_bytes = OperandLayout(problem).bytes;
  return std::max(set_bytes, std::min(kSetsBytesMax, SaturatingMultiply(set_bytes, kSetsMax)));
}

}  // namespace warpcall::inspect
