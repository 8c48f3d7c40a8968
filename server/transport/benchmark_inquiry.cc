#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/copy_ceiling.h"
#include "server/inspect/surroundings.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kWarmupDefault = 10;
constexpr int kIterationsDefault = 100;
constexpr int kIterationsMax = 100'000;
constexpr int kImplementationsMax = 64;
constexpr int64_t kTimeoutNsMax = 3'600'000'000'000;
// Of the time that a call has, for its answer.
constexpr int64_t kAnswerShare = 10;
constexpr int64_t kAnswerNsMin = 100'000'000;
constexpr int64_t kAnswerNsMax = 1'000'000'000;

absl::Status CheckCount(absl::string_view name, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be 0 (the default) to ", max));
}

// What is asked, each name known and each shape possible.
struct CheckedBenchmark {
  const Kernel* kernel;
  Problem problem;
};

absl::StatusOr<CheckedBenchmark> Check(const Registry& registry,
                                       const v1::BenchmarkRequest& request) {
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked.kernel, registry.Find(request.kernel()));
  if (request.implementations_size() > kImplementationsMax)
    return absl::InvalidArgumentError(absl::StrCat(request.implementations_size(),
                                                   " implementations are named; the limit is ",
                                                   kImplementationsMax));
  for (const std::string& name : request.implementations())
    RETURN_IF_ERROR(registry.CheckImplementationName(*checked.kernel, name));
  ASSIGN_OR_RETURN(checked.problem,
                   ToProblem(request.inputs(), request.attributes(), *checked.kernel->op));
  return checked;
}

// Where one of the implementations named runs, or any. Where none does, for the results to tell
// why: the device that is named, or the first that one of `rows`, theirs, is for.
absl::StatusOr<int> DeviceFor(const ExecuteDeps& deps, const CheckedBenchmark& checked,
                              const v1::BenchmarkRequest& request, absl::Span<const int> rows) {
  const Engine& engine = *deps.engine;
  const Registry& registry = *deps.registry;
  std::vector<std::string> names(request.implementations().begin(),
                                 request.implementations().end());
  if (names.empty()) names.push_back("");
  for (const std::string& name : names) {
    const auto choice = engine.Choose(*checked.kernel, name, request.device(), checked.problem);
    if (choice.ok()) return choice->device;
    if (!absl::IsUnimplemented(choice.status()) || request.implementations().empty())
      return choice.status();
  }
  for (int i = 0; i < engine.device_count(); ++i) {
    const DeviceProperties& device = engine.device(i).properties();
    if (device.name == request.device()) return i;
    if (request.device().empty() && absl::c_any_of(rows, [&](int id) {
          return registry.rows()[static_cast<size_t>(id)].implementation.device_kind == device.kind;
        }))
      return i;
  }
  return 0;
}

// A row that is asked for, and whether it runs.
struct Candidate {
  const Row* row;
  absl::Status status;
};

void AddCandidate(const Row& row, const CheckedBenchmark& checked, const DeviceProperties& device,
                  std::vector<Candidate>* candidates) {
  for (const Candidate& other : *candidates)
    if (other.row == &row) return;
  candidates->push_back({&row, Registry::CheckRuns(row, checked.problem, device)});
}

// Whether a row for the inputs' types does not run only because this machine can't run it.
bool IsMissed(const Row& row, const Problem& problem) {
  return !row.availability.is_offered() &&
         absl::c_all_of(problem.inputs, [&](const TensorSpec& input) {
           return absl::c_linear_search(row.implementation.data_types, input.data_type);
         });
}

// The rows named that are for this kind of device; where a name has none, its rows with the reason.
// No name: all that run, and those that this machine can't run with the reason.
std::vector<Candidate> CandidatesFor(const Registry& registry, const CheckedBenchmark& checked,
                                     const v1::BenchmarkRequest& request,
                                     const DeviceProperties& device) {
  const Kernel& kernel = *checked.kernel;
  std::vector<Candidate> candidates;
  const auto add_named = [&](absl::string_view name, bool any_kind) {
    const size_t before = candidates.size();
    for (const int id : kernel.rows) {
      const Row& row = registry.rows()[static_cast<size_t>(id)];
      if (Registry::Matches(row, name) &&
          (any_kind || row.implementation.device_kind == device.kind))
        AddCandidate(row, checked, device, &candidates);
    }
    return candidates.size() > before;
  };
  for (const std::string& name : request.implementations())
    if (!add_named(name, false)) add_named(name, true);
  if (!request.implementations().empty()) return candidates;
  add_named("", false);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return !candidate.status.ok() && !IsMissed(*candidate.row, checked.problem);
  });
  return candidates;
}

// What all results of a run are described with.
struct Described {
  Work work;
  double ceiling = 0;
};

void Describe(const inspect::BenchmarkResult& result, const Described& run,
              v1::BenchmarkResult* described) {
  described->set_implementation(result.row->implementation.name);
  described->set_family(FamilyName(result.row->implementation.family));
  described->set_predicted_ns(result.predicted_ns);
  if (!result.status.ok()) {
    described->set_error(std::string(result.status.message()));
    return;
  }
  described->set_mean_ns(result.mean_ns);
  described->set_median_ns(result.median_ns);
  described->set_min_ns(result.min_ns);
  described->set_p10_ns(result.p10_ns);
  described->set_p90_ns(result.p90_ns);
  described->set_median_low_ns(result.median_low_ns);
  described->set_median_high_ns(result.median_high_ns);
  described->set_noise(result.noise);
  described->set_unstable(result.unstable);
  described->set_verdict(result.verdict);
  described->set_iterations(result.iterations);
  described->set_launches_per_iteration(result.launches_per_iteration);
  described->set_relative_error(result.relative_error);
  described->set_checked_elements(result.checked_elements);
  described->set_max_error(result.max_error);
  const double seconds = result.median_ns / 1e9;
  if (seconds > 0) {
    described->set_bytes_per_second(static_cast<double>(run.work.bytes) / seconds);
    described->set_flops_per_second(static_cast<double>(run.work.flops) / seconds);
  }
  if (run.ceiling > 0)
    described->set_fraction_of_ceiling(described->bytes_per_second() / run.ceiling);
  *described->mutable_launch() = ToProto(run.work, result.shape);
}

v1::BenchmarkResponse ToResponse(const inspect::BenchmarkReport& report, const Work& work) {
  v1::BenchmarkResponse response;
  response.set_ceiling_bytes_per_second(report.ceiling_bytes_per_second);
  response.set_flops_ceiling(report.flops_ceiling);
  for (const inspect::BenchmarkResult& result : report.results)
    Describe(result, {work, report.ceiling_bytes_per_second}, response.add_results());
  return response;
}

// Takes the place of results that were sent before they could be ranked.
void AddVerdicts(const std::vector<inspect::BenchmarkResult>& results,
                 v1::BenchmarkResponse* response) {
  for (const inspect::BenchmarkResult& result : results)
    if (!result.verdict.empty())
      (*response->mutable_verdicts())[result.row->implementation.name] = result.verdict;
}

// Those that no run is needed for, to be told at once.
inspect::BenchmarkReport Refused(const std::vector<Candidate>& candidates) {
  inspect::BenchmarkReport report;
  for (const Candidate& candidate : candidates)
    if (!candidate.status.ok())
      report.results.push_back(
          {.row = candidate.row, .status = candidate.status, .verdict = {}, .shape = {}});
  return report;
}

// Puts those that were refused where they stand among the candidates.
void Merge(const std::vector<Candidate>& candidates, inspect::BenchmarkReport* report) {
  std::vector<inspect::BenchmarkResult> all;
  auto result = report->results.begin();
  for (const Candidate& candidate : candidates) {
    if (candidate.status.ok())
      all.push_back(std::move(*result++));
    else
      all.push_back({.row = candidate.row, .status = candidate.status, .verdict = {}, .shape = {}});
  }
  report->results = std::move(all);
}

// The answer comes before the deadline, however long the last launch, and on its way it takes some
// time too.
int64_t MeasureUntil(int64_t deadline_ns, int64_t now_ns) {
  if (deadline_ns == kNoDeadline) return kNoDeadline;
  return deadline_ns -
         std::clamp((deadline_ns - now_ns) / kAnswerShare, kAnswerNsMin, kAnswerNsMax);
}

inspect::BenchmarkPlan ToPlan(const v1::BenchmarkRequest& request, const CheckedBenchmark& checked,
                              const std::vector<Candidate>& candidates) {
  inspect::BenchmarkPlan plan{.kernel = checked.kernel, .rows = {}, .problem = checked.problem};
  for (const Candidate& candidate : candidates)
    if (candidate.status.ok()) plan.rows.push_back(candidate.row);
  plan.warmup_iterations =
      request.warmup_iterations() > 0 ? request.warmup_iterations() : kWarmupDefault;
  plan.iterations = request.iterations() > 0 ? request.iterations() : kIterationsDefault;
  plan.seed = request.seed();
  plan.max_noise = request.max_noise();
  plan.timeout_ns = request.timeout_ns();
  return plan;
}

v1::RunStamp ToStamp(const DeviceProperties& device, const v1::BenchmarkRequest& request,
                     const inspect::BenchmarkReport& report) {
  v1::RunStamp stamp;
  stamp.set_device_description(device.description);
  stamp.set_seed(request.seed());
  stamp.set_started_unix_ns(report.started_unix_ns);
  const inspect::ConditionsSeen& seen = report.conditions;
  stamp.set_driver(seen.driver);
  stamp.set_sm_clock_mhz_min(seen.sm_clock_mhz_min);
  stamp.set_sm_clock_mhz_max(seen.sm_clock_mhz_max);
  stamp.set_memory_clock_mhz(seen.memory_clock_mhz);
  stamp.set_temperature_celsius(seen.temperature_celsius);
  stamp.set_power_watts(seen.power_watts);
  for (const std::string& reason : seen.throttle_reasons) stamp.add_throttle_reasons(reason);
  stamp.set_samples_dropped(report.samples_dropped);
  return stamp;
}

}  // namespace

absl::StatusOr<inspect::Inquiry> ToBenchmarkInquiry(const ExecuteDeps& deps, std::string bytes) {
  v1::BenchmarkRequest request;
  RETURN_IF_ERROR(ParseSmall(bytes, &request));
  RETURN_IF_ERROR(CheckCount("warmup_iterations", request.warmup_iterations(), kIterationsMax));
  RETURN_IF_ERROR(CheckCount("iterations", request.iterations(), kIterationsMax));
  RETURN_IF_ERROR(CheckCount("timeout_ns", request.timeout_ns(), kTimeoutNsMax));
  if (!(request.max_noise() >= 0 && request.max_noise() <= 1))
    return absl::InvalidArgumentError(
        absl::StrCat("max_noise is ", request.max_noise(), "; it must be 0 (the default) to 1"));
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked, Check(*deps.registry, request));
  inspect::Inquiry inquiry;
  inquiry.kind = Inspection::kBenchmark;
  inquiry.kernel = checked.kernel->id;
  inquiry.inputs = InputsOf(checked.problem);
  for (const int id : checked.kernel->rows)
    for (const std::string& name : request.implementations())
      if (Registry::Matches(deps.registry->rows()[static_cast<size_t>(id)], name))
        inquiry.rows.push_back(id);
  ASSIGN_OR_RETURN(inquiry.device_index, DeviceFor(deps, checked, request, inquiry.rows));
  const Device& device = deps.engine->device(inquiry.device_index);
  RETURN_IF_ERROR(
      CheckOperandBytes(deps, "benchmarking", inspect::BenchmarkBytes(checked.problem), device));
  inquiry.device = device.properties().name;
  inquiry.of_whole_memory = inspect::CopiesPassCaches(
      checked.kernel->op->work(checked.problem).bytes, device.properties());
  inquiry.request = std::move(bytes);
  return inquiry;
}

inspect::Inquiry BandwidthInquiry(const std::string& device) {
  v1::BenchmarkRequest request;
  request.set_kernel("identity");
  request.set_iterations(1);
  v1::TensorSpec* input = request.add_inputs();
  input->set_data_type(v1::DATA_TYPE_FLOAT32);
  input->add_shape(0);
  inspect::Inquiry inquiry;
  inquiry.kind = Inspection::kBenchmark;
  inquiry.device = device;
  inquiry.request = request.SerializeAsString();
  return inquiry;
}

void NoteBandwidthOf(const std::string& response, int device, Engine* engine) {
  v1::BenchmarkResponse parsed;
  if (parsed.ParseFromString(response))
    engine->NoteBandwidth(device, parsed.ceiling_bytes_per_second());
}

absl::StatusOr<std::string> AnswerBenchmark(const Registry& registry, Device* device,
                                            const BenchmarkToAnswer& benchmark) {
  v1::BenchmarkRequest request;
  RETURN_IF_ERROR(ParseSmall(benchmark.bytes, &request));
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked, Check(registry, request));
  const DeviceProperties& properties = device->properties();
  const Work work = checked.kernel->op->work(checked.problem);
  const std::vector<Candidate> candidates = CandidatesFor(registry, checked, request, properties);
  const auto surroundings =
      inspect::NewSurroundings(properties, inspect::NewLinuxMachine(getppid()));
  inspect::BenchmarkSite site{&registry, device, surroundings.get(), benchmark.conditions,
                              benchmark.multiply_adds};
  if (benchmark.tell != nullptr) {
    site.tell = [&](const inspect::BenchmarkReport& news) {
      benchmark.tell(ToResponse(news, work).SerializeAsString());
    };
    if (const inspect::BenchmarkReport refused = Refused(candidates); !refused.results.empty())
      site.tell(refused);
  }
  inspect::BenchmarkPlan plan = ToPlan(request, checked, candidates);
  plan.deadline_ns = MeasureUntil(benchmark.deadline_ns, MonotonicNs());
  inspect::BenchmarkReport report;
  ASSIGN_OR_RETURN(report, inspect::RunBenchmark(site, plan, {}));
  v1::BenchmarkResponse response;
  if (benchmark.tell != nullptr) {
    AddVerdicts(std::exchange(report.results, {}), &response);
  } else {
    Merge(candidates, &report);
  }
  response.MergeFrom(ToResponse(report, work));
  response.set_device(properties.name);
  *response.mutable_stamp() = ToStamp(properties, request, report);
  response.mutable_stamp()->set_server_version(benchmark.server_version);
  response.mutable_stamp()->set_cuda(benchmark.cuda_version);
  return response.SerializeAsString();
}

}  // namespace warpcall
