#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/inspect/benchmark.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kWarmupDefault = 10;
constexpr int kIterationsDefault = 100;
constexpr int kIterationsMax = 100'000;
constexpr int kImplementationsMax = 64;

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

// Where one of the implementations named runs, or any. Where none does: the device that is named,
// or the first, for the results to tell why.
absl::StatusOr<int> DeviceFor(const Engine& engine, const CheckedBenchmark& checked,
                              const v1::BenchmarkRequest& request) {
  std::vector<std::string> names(request.implementations().begin(),
                                 request.implementations().end());
  if (names.empty()) names.push_back("");
  for (const std::string& name : names) {
    const auto choice = engine.Choose(*checked.kernel, name, request.device(), checked.problem);
    if (choice.ok()) return choice->device;
    if (!absl::IsUnimplemented(choice.status()) || request.implementations().empty())
      return choice.status();
  }
  for (int i = 0; i < engine.device_count(); ++i)
    if (engine.device(i).properties().name == request.device()) return i;
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

// The rows named that are for this kind of device; where a name has none, its rows with the reason.
// No name: all that run.
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
  std::erase_if(candidates, [](const Candidate& candidate) { return !candidate.status.ok(); });
  return candidates;
}

void Describe(const inspect::BenchmarkResult& result, const Work& work, double ceiling,
              v1::BenchmarkResult* described) {
  if (!result.status.ok()) {
    described->set_error(std::string(result.status.message()));
    return;
  }
  described->set_mean_ns(result.mean_ns);
  described->set_median_ns(result.median_ns);
  described->set_min_ns(result.min_ns);
  described->set_p90_ns(result.p90_ns);
  described->set_iterations(result.iterations);
  described->set_launches_per_iteration(result.launches_per_iteration);
  described->set_relative_error(result.relative_error);
  described->set_checked_elements(result.checked_elements);
  const double seconds = result.median_ns / 1e9;
  if (seconds > 0) {
    described->set_bytes_per_second(static_cast<double>(work.bytes) / seconds);
    described->set_flops_per_second(static_cast<double>(work.flops) / seconds);
  }
  if (ceiling > 0) described->set_fraction_of_ceiling(described->bytes_per_second() / ceiling);
  *described->mutable_launch() = ToProto(work, result.shape);
}

v1::BenchmarkResponse ToResponse(const std::vector<Candidate>& candidates, const Work& work,
                                 const inspect::BenchmarkReport& report) {
  v1::BenchmarkResponse response;
  response.set_ceiling_bytes_per_second(report.ceiling_bytes_per_second);
  auto result = report.results.begin();
  for (const Candidate& candidate : candidates) {
    v1::BenchmarkResult* described = response.add_results();
    described->set_implementation(candidate.row->implementation.name);
    described->set_family(FamilyName(candidate.row->implementation.family));
    if (candidate.status.ok())
      Describe(*result++, work, report.ceiling_bytes_per_second, described);
    else
      described->set_error(std::string(candidate.status.message()));
  }
  return response;
}

}  // namespace

absl::StatusOr<inspect::Inquiry> ToBenchmarkInquiry(const ExecuteDeps& deps, std::string bytes) {
  v1::BenchmarkRequest request;
  RETURN_IF_ERROR(ParseSmall(bytes, &request));
  RETURN_IF_ERROR(CheckCount("warmup_iterations", request.warmup_iterations(), kIterationsMax));
  RETURN_IF_ERROR(CheckCount("iterations", request.iterations(), kIterationsMax));
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked, Check(*deps.registry, request));
  inspect::Inquiry inquiry;
  inquiry.kind = Inspection::kBenchmark;
  ASSIGN_OR_RETURN(inquiry.device_index, DeviceFor(*deps.engine, checked, request));
  const Device& device = deps.engine->device(inquiry.device_index);
  RETURN_IF_ERROR(
      CheckOperandBytes(deps, "benchmarking", inspect::BenchmarkBytes(checked.problem), device));
  inquiry.device = device.properties().name;
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
                                            const std::string& bytes) {
  v1::BenchmarkRequest request;
  RETURN_IF_ERROR(ParseSmall(bytes, &request));
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked, Check(registry, request));
  const std::vector<Candidate> candidates =
      CandidatesFor(registry, checked, request, device->properties());
  inspect::BenchmarkPlan plan{.kernel = checked.kernel, .rows = {}, .problem = checked.problem};
  for (const Candidate& candidate : candidates)
    if (candidate.status.ok()) plan.rows.push_back(candidate.row);
  plan.warmup_iterations =
      request.warmup_iterations() > 0 ? request.warmup_iterations() : kWarmupDefault;
  plan.iterations = request.iterations() > 0 ? request.iterations() : kIterationsDefault;
  plan.seed = request.seed();
  inspect::BenchmarkReport report;
  ASSIGN_OR_RETURN(report, inspect::RunBenchmark(registry, device, plan, {}));
  v1::BenchmarkResponse response =
      ToResponse(candidates, checked.kernel->op->work(checked.problem), report);
  response.set_device(device->properties().name);
  return response.SerializeAsString();
}

}  // namespace warpcall
