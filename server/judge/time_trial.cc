#include "server/judge/time_trial.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/operand_sets.h"
#include "server/judge/judge.h"
#include "server/judge/output_witness.h"

namespace warpcall::judge {
namespace {

// With a single set every launch would find its inputs in the cache, and the last launch's output.
constexpr int64_t kSetsMin = 2;
constexpr int64_t kCachesPassed = 2;
constexpr int64_t kRowNsMax = 2'000'000'000;
constexpr int64_t kRowNsEnough = 300'000'000;
// Relative standard error of a median at which sampling stops.
constexpr double kNoiseEnough = 0.002;
constexpr int64_t kReferenceNsMax = 20'000'000;
// A float32 product on tensor cores takes at least three products of a 16-bit type.
constexpr double kFloat32Products = 3;

// Name of the pushed row; no row of the server has it.
constexpr char kRowName[] = "push:";

class TimedRows {
 public:
  TimedRows(const TimeSite& site, const TimePlan& plan)
      : site_(site),
        plan_(plan),
        kernel_(KernelOf(*site.registry, *plan.manifest->op)),
        name_(absl::StrCat(kRowName, plan.manifest->name)),
        row_{.id = -1,
             .kernel = kernel_.id,
             .implementation = {.name = name_.c_str(),
                                .family = Family::kPushed,
                                .device_kind = site.device->properties().kind,
                                .summary = "",
                                .data_types = plan.manifest->types,
                                .supports = SupportsAll,
                                .plan = [made = plan.plan](const Problem&, const PlanContext&) {
                                  return absl::StatusOr<PlanPtr>(made);
                                }}} {}

  absl::StatusOr<TimeResult> Run() {
    const DeviceProperties& device = site_.device->properties();
    const int64_t set_bytes = inspect::OperandLayout(*plan_.problem).bytes;
    const int64_t sets = inspect::SetsFor(set_bytes, device);
    const Work work = kernel_.op->work(*plan_.problem);
    result_.cold = sets * set_bytes >= kCachesPassed * inspect::CacheBytes(device);
    result_.floor_ns = FloorNs(work, plan_.problem->inputs[0].data_type, result_.cold, device);
    if (sets < kSetsMin) {
      NotTimed(absl::StrCat("not timed: ", kSetsMin, " sets of operands of ", set_bytes,
                            " bytes do not fit"));
      return std::move(result_);
    }
    RETURN_IF_ERROR(Measure());
    Judge();
    return std::move(result_);
  }

 private:
  static const Kernel& KernelOf(const Registry& registry, const Op& op) {
    const absl::StatusOr<const Kernel*> kernel = registry.Find(op.name);
    WARPCALL_CHECK(kernel.ok(), op.name);
    return **kernel;
  }

  v1::BenchmarkResult Unmeasured(absl::string_view name, absl::string_view why) const {
    v1::BenchmarkResult result;
    result.set_implementation(std::string(name));
    result.set_error(std::string(why));
    return result;
  }

  void NotTimed(const std::string& why) { result_.results.push_back(Unmeasured(name_, why)); }

  // The implementations that the caller names; else the first of each family.
  std::vector<const Row*> Others() {
    if (plan_.compare_with == std::vector<std::string>{kNoOthers}) return {};
    std::vector<std::string> names = plan_.compare_with;
    if (names.empty())
      for (const Family family :
           {Family::kLibrary, Family::kCuda, Family::kTriton, Family::kCompiled, Family::kCpu})
        names.push_back(FamilyName(family));
    std::vector<const Row*> rows;
    for (const std::string& name : names) {
      const absl::StatusOr<const Row*> row =
          site_.registry->Select(kernel_, name, *plan_.problem, site_.device->properties());
      if (row.ok() && !absl::c_linear_search(rows, *row))
        rows.push_back(*row);
      else if (!row.ok() && !plan_.compare_with.empty())
        not_run_.push_back(Unmeasured(name, row.status().message()));
    }
    return rows;
  }

  absl::Status Measure() {
    inspect::BenchmarkPlan benchmark{
        .kernel = &kernel_, .rows = {&row_}, .problem = *plan_.problem};
    for (const Row* const other : Others()) benchmark.rows.push_back(other);
    benchmark.iterations = plan_.iterations;
    benchmark.max_noise = kNoiseEnough;
    benchmark.seed = plan_.secret;
    benchmark.deadline_ns = plan_.deadline_ns;
    ASSIGN_OR_RETURN(const std::unique_ptr<OutputWitness> witness,
                     OutputWitness::Create({site_.device, site_.pool, site_.watch},
                                           {.op = kernel_.op,
                                            .problem = plan_.problem,
                                            .row = &row_,
                                            .plan = plan_.plan,
                                            .deterministic = plan_.manifest->deterministic},
                                           plan_.secret));
    inspect::BenchmarkSite site{site_.registry, site_.device, site_.surroundings, site_.conditions,
                                site_.multiply_adds};
    site.clock = site_.clock;
    site.witness = witness.get();
    ASSIGN_OR_RETURN(v1::BenchmarkResponse response,
                     inspect::RunBenchmark(site, benchmark,
                                           {.row_ns_max = kRowNsMax,
                                            .row_ns_enough = kRowNsEnough,
                                            .reference_ns_max = kReferenceNsMax}));
    if (witness->finding().has_value()) {
      result_.finding = *witness->finding();
      result_.detail = witness->detail();
    }
    Take(response);
    return absl::OkStatus();
  }

  static bool HasRun(const v1::BenchmarkResult& result) {
    return result.error().empty() && result.median_ns() > 0;
  }

  // Keeps the fastest of the server's own implementations and the fastest of the library's, or else
  // all those that the caller named.
  void Take(v1::BenchmarkResponse& response) {
    result_.ceiling_bytes_per_second = response.ceiling_bytes_per_second();
    result_.flops_ceiling = response.flops_ceiling();
    result_.stamp = response.stamp();
    v1::BenchmarkResult& pushed = *response.mutable_results(0);
    pushed.set_implementation(name_);
    pushed.mutable_launch()->clear_variant();
    result_.unstable = pushed.unstable();
    result_.results.push_back(std::move(pushed));
    const bool names_all = !plan_.compare_with.empty();
    std::optional<v1::BenchmarkResult> library;
    std::optional<v1::BenchmarkResult> own;
    for (int i = 1; i < response.results_size(); ++i) {
      v1::BenchmarkResult& each = *response.mutable_results(i);
      if (names_all) {
        result_.results.push_back(std::move(each));
        continue;
      }
      auto& fastest = each.family() == FamilyName(Family::kLibrary) ? library : own;
      if (HasRun(each) && (!fastest.has_value() || each.median_ns() < fastest->median_ns()))
        fastest = std::move(each);
    }
    for (auto* fastest : {&library, &own})
      if (fastest->has_value()) result_.results.push_back(*std::move(*fastest));
    for (v1::BenchmarkResult& each : not_run_) result_.results.push_back(std::move(each));
  }

  void Judge() {
    const v1::BenchmarkResult& ours = result_.results[0];
    if (!HasRun(ours)) {
      if (result_.finding == Finding::kPassed && !ours.error().empty()) {
        result_.finding = Finding::kRuntimeError;
        result_.detail = ours.error();
      }
      return;
    }
    double best_ns = 0;
    for (size_t i = 1; i < result_.results.size(); ++i)
      if (HasRun(result_.results[i]) && (best_ns == 0 || result_.results[i].median_ns() < best_ns))
        best_ns = result_.results[i].median_ns();
    result_.speedup = best_ns / ours.median_ns();
    if (result_.finding != Finding::kPassed || ours.median_ns() >= kFloorShare * result_.floor_ns)
      return;
    result_.finding = Finding::kBelowFloor;
    result_.detail = absl::StrFormat(
        "a launch took %.0f ns; no kernel on this device takes less than %.0f, so it does not do "
        "its work each time",
        ours.median_ns(), result_.floor_ns);
  }

  const TimeSite& site_;
  const TimePlan& plan_;
  const Kernel& kernel_;
  const std::string name_;
  const Row row_;
  std::vector<v1::BenchmarkResult> not_run_;
  TimeResult result_;
};

}  // namespace

double FloorNs(const Work& work, DataType type, bool cold, const DeviceProperties& device) {
  double seconds = 0;
  if (cold && device.pin_bytes_per_second > 0)
    seconds = static_cast<double>(work.bytes) / device.pin_bytes_per_second;
  const double products = type == DataType::kFloat32 ? kFloat32Products : 1;
  if (device.float16_flops_per_second > 0)
    seconds = std::max(
        seconds, static_cast<double>(work.flops) * products / device.float16_flops_per_second);
  return seconds * 1e9;
}

absl::StatusOr<TimeResult> RunTimeTrial(const TimeSite& site, const TimePlan& plan) {
  return TimedRows(site, plan).Run();
}

}  // namespace warpcall::judge
