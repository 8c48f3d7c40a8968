#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/surroundings.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kWarmupDefault = 10;
constexpr int kIterationsDefault = 100;
constexpr int64_t kTimeoutNsMax = 3'600'000'000'000;
// A call keeps one part in kAnswerShare of its time for the answer.
constexpr int64_t kAnswerShare = 10;
constexpr int64_t kAnswerNsMin = 100'000'000;
constexpr int64_t kAnswerNsMax = 1'000'000'000;

// The request with known names and valid shapes.
struct CheckedBenchmark {
  const Kernel* kernel;
  Problem problem;
};

absl::StatusOr<CheckedBenchmark> Check(const Registry& registry,
                                       const v1::BenchmarkRequest& request) {
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked.kernel, registry.Find(request.kernel()));
  RETURN_IF_ERROR(CheckImplementations(registry, *checked.kernel, request.implementations()));
  ASSIGN_OR_RETURN(checked.problem,
                   ToProblem(request.inputs(), request.attributes(), *checked.kernel->op));
  return checked;
}

// The rows that are named.
std::vector<int> RowsNamed(const Registry& registry, const Kernel& kernel,
                           const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::vector<int> rows;
  absl::c_copy_if(kernel.rows, std::back_inserter(rows), [&](int id) {
    return absl::c_any_of(names, [&](const std::string& name) {
      return Registry::Matches(registry.rows()[static_cast<size_t>(id)], WithoutStar(name));
    });
  });
  return rows;
}

// Returns the most preferred device on which one of the named implementations runs, or any if none
// is named. Where none runs, for the results to tell why: the device that is named, or the first
// that one of `rows`, theirs, is for.
absl::StatusOr<int> DeviceFor(const ExecuteDeps& deps, const CheckedBenchmark& checked,
                              const v1::BenchmarkRequest& request, absl::Span<const int> rows) {
  const Engine& engine = *deps.engine;
  const Registry& registry = *deps.registry;
  std::vector<std::string> names(request.implementations().begin(),
                                 request.implementations().end());
  if (names.empty()) names.push_back("");
  std::optional<int> preferred;
  for (const std::string& name : names) {
    const auto choice = engine.Choose(*checked.kernel, std::string(WithoutStar(name)),
                                      request.device(), checked.problem);
    if (choice.ok()) {
      preferred = std::min(choice->device, preferred.value_or(choice->device));
    } else if (!preferred.has_value() &&
               (!absl::IsUnimplemented(choice.status()) || request.implementations().empty())) {
      return choice.status();
    }
  }
  if (preferred.has_value()) return *preferred;
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

// Returns true if the row takes the inputs' types but this machine can't run it.
bool IsMissed(const Row& row, const Problem& problem) {
  return !row.availability.is_offered() &&
         absl::c_all_of(problem.inputs, [&](const TensorSpec& input) {
           return absl::c_linear_search(row.implementation.data_types, input.data_type);
         });
}

// Returns the rows that `name` names for the device's kind; where there is none, those for others.
std::vector<const Row*> RowsOfName(const Registry& registry, const Kernel& kernel,
                                   absl::string_view name, const DeviceProperties& device) {
  std::vector<const Row*> rows;
  std::vector<const Row*> others;
  for (const int id : kernel.rows) {
    const Row& row = registry.rows()[static_cast<size_t>(id)];
    if (!Registry::Matches(row, WithoutStar(name))) continue;
    (row.implementation.device_kind == device.kind ? rows : others).push_back(&row);
  }
  return rows.empty() ? others : rows;
}

// Appends those of `rows` that `all` lacks.
void AddOnce(absl::Span<const Row* const> rows, std::vector<const Row*>* all) {
  for (const Row* const row : rows)
    if (!absl::c_linear_search(*all, row)) all->push_back(row);
}

// Returns the rows of the device's kind that run, and those that this machine can't run.
std::vector<const Row*> RowsThatFit(const Registry& registry, const CheckedBenchmark& checked,
                                    const DeviceProperties& device) {
  std::vector<const Row*> rows = RowsOfName(registry, *checked.kernel, "", device);
  std::erase_if(rows, [&](const Row* row) {
    return row->implementation.device_kind != device.kind ||
           (!Registry::CheckRuns(*row, checked.problem, device).ok() &&
            !IsMissed(*row, checked.problem));
  });
  return rows;
}

// Returns all rows that the message names; where it names none, all that fit.
std::vector<const Row*> RowsFor(const Registry& registry, const CheckedBenchmark& checked,
                                const v1::BenchmarkRequest& request,
                                const DeviceProperties& device) {
  if (request.implementations().empty()) return RowsThatFit(registry, checked, device);
  std::vector<const Row*> rows;
  for (const std::string& name : request.implementations())
    AddOnce(RowsOfName(registry, *checked.kernel, name, device), &rows);
  return rows;
}

// Leaves only the verdicts of results that were sent before they could be ranked.
void LeaveVerdicts(v1::BenchmarkResponse* response) {
  for (const v1::BenchmarkResult& result : response->results()) {
    if (result.verdict().empty()) continue;
    const bool is_alone = absl::c_count_if(response->results(), [&](const auto& other) {
                            return other.implementation() == result.implementation();
                          }) == 1;
    const std::string name = is_alone ? result.implementation() : PinnedName(result);
    (*response->mutable_verdicts())[name] = result.verdict();
  }
  response->clear_results();
}

// Chooses one row for each implementation: the variant that Execute would run, or else the first,
// whose result gives the reason.
std::vector<const Row*> OneOfEach(const ExecuteDeps& deps, const CheckedBenchmark& checked,
                                  absl::Span<const Row* const> rows,
                                  const DeviceProperties& device) {
  std::vector<const Row*> variants;
  absl::flat_hash_set<Family> families;
  for (const Row* const row : rows) {
    const Family family = row->implementation.family;
    if (!families.insert(family).second) continue;
    const auto choice =
        deps.engine->Choose(*checked.kernel, FamilyName(family), device.name, checked.problem);
    variants.push_back(choice.ok() ? choice->row : row);
  }
  return variants;
}

// Returns the rows that a Benchmark measures.
std::vector<const Row*> VariantsFor(const ExecuteDeps& deps, const CheckedBenchmark& checked,
                                    const v1::BenchmarkRequest& request,
                                    const DeviceProperties& device) {
  std::vector<const Row*> variants;
  if (request.implementations().empty()) {
    const std::vector<const Row*> rows = RowsThatFit(*deps.registry, checked, device);
    variants = OneOfEach(deps, checked, rows, device);
    absl::c_copy_if(rows, std::back_inserter(variants), [&](const Row* row) {
      return !row->availability.is_offered() && !absl::c_linear_search(variants, row);
    });
  }
  for (const std::string& name : request.implementations()) {
    const std::vector<const Row*> rows = RowsOfName(*deps.registry, *checked.kernel, name, device);
    const bool is_pinned = rows.size() == 1 || WithoutStar(name) != name;
    AddOnce(is_pinned ? rows : OneOfEach(deps, checked, rows, device), &variants);
  }
  return variants;
}

inspect::BenchmarkPlan ToPlan(const v1::BenchmarkRequest& request, const CheckedBenchmark& checked,
                              std::vector<const Row*> rows) {
  inspect::BenchmarkPlan plan{
      .kernel = checked.kernel, .rows = std::move(rows), .problem = checked.problem};
  plan.warmup_iterations =
      request.warmup_iterations() > 0 ? request.warmup_iterations() : kWarmupDefault;
  plan.iterations = request.iterations() > 0 ? request.iterations() : kIterationsDefault;
  plan.seed = request.seed();
  plan.max_noise = request.max_noise();
  plan.timeout_ns = request.timeout_ns();
  plan.settled = request.method() == kBenchmarkSettled;
  return plan;
}

absl::Status CheckMethod(const v1::BenchmarkRequest& request) {
  if (request.method() != kBenchmarkSettled) {
    if (request.method().empty() || request.method() == kBenchmarkBurst) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("method is \"", absl::CEscape(request.method()),
                                                   "\"; it must be burst or settled"));
  }
  const std::pair<const char*, double> unused[] = {
      {"iterations", request.iterations()},
      {"max_noise", request.max_noise()},
      {"timeout_ns", static_cast<double>(request.timeout_ns())}};
  for (const auto& [name, value] : unused)
    if (value != 0)
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", value,
                       "; it must be 0 with method \"settled\", whose turns "
                       "last until the clock has settled, and 3 s more"));
  return absl::OkStatus();
}

// Reads all but the implementations.
absl::Status ReadMessage(const ExecuteDeps& deps, const std::string& bytes,
                         v1::BenchmarkRequest* read, Request* request) {
  v1::BenchmarkRequest& message = *read;
  RETURN_IF_ERROR(ParseSmall(bytes, &message));
  RETURN_IF_ERROR(
      CheckCount("warmup_iterations", message.warmup_iterations(), kBenchmarkIterationsMax));
  RETURN_IF_ERROR(CheckCount("iterations", message.iterations(), kBenchmarkIterationsMax));
  RETURN_IF_ERROR(CheckCount("timeout_ns", message.timeout_ns(), kTimeoutNsMax));
  if (!(message.max_noise() >= 0 && message.max_noise() <= 1))
    return absl::InvalidArgumentError(
        absl::StrCat("max_noise is ", message.max_noise(), "; it must be 0 (the default) to 1"));
  RETURN_IF_ERROR(CheckMethod(message));
  const Registry& registry = *deps.registry;
  const CallSpec spec = {
      .kernel = message.kernel(), .implementation = "", .device = "", .request_id = ""};
  ASSIGN_OR_RETURN(CheckedBenchmark checked, Check(registry, message));
  RETURN_IF_ERROR(request->ReadKernel(spec));
  request->SetProblem(std::move(checked.problem));
  ASSIGN_OR_RETURN(request->trace().device,
                   DeviceFor(deps, {&request->kernel(), request->problem()}, message,
                             RowsNamed(registry, request->kernel(), message.implementations())));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCount(absl::string_view name, int64_t value, int64_t max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be 0 (the default) to ", max));
}

absl::Status CheckImplementations(const Registry& registry, const Kernel& kernel,
                                  const google::protobuf::RepeatedPtrField<std::string>& names) {
  if (names.size() > kImplementationsMax)
    return absl::InvalidArgumentError(absl::StrCat(
        names.size(), " implementations are named; the limit is ", kImplementationsMax));
  for (const std::string& name : names)
    RETURN_IF_ERROR(registry.CheckImplementationName(kernel, WithoutStar(name)));
  return absl::OkStatus();
}

absl::Status CheckPolicyFor(const Registry& registry, const Request& request,
                            const google::protobuf::RepeatedPtrField<std::string>& names) {
  const std::vector<int> rows = RowsNamed(registry, request.kernel(), names);
  return request.CheckPolicy(request.device(), rows.empty() ? request.kernel().rows : rows);
}

int64_t MeasureUntil(int64_t deadline_ns, int64_t now_ns) {
  if (deadline_ns == kNoDeadline) return kNoDeadline;
  return deadline_ns -
         std::clamp((deadline_ns - now_ns) / kAnswerShare, kAnswerNsMin, kAnswerNsMax);
}

absl::string_view WithoutStar(absl::string_view name) {
  absl::ConsumeSuffix(&name, ":*");
  return name;
}

absl::StatusOr<int64_t> ReadWithVariants(const ExecuteDeps& deps, const std::string& bytes,
                                         Request* request) {
  v1::BenchmarkRequest message;
  RETURN_IF_ERROR(ReadMessage(deps, bytes, &message, request));
  RETURN_IF_ERROR(CheckPolicyFor(*deps.registry, *request, message.implementations()));
  return inspect::BenchmarkBytes(request->problem());
}

absl::StatusOr<int64_t> ReadBenchmark(const ExecuteDeps& deps, std::string* bytes,
                                      Request* request) {
  v1::BenchmarkRequest message;
  RETURN_IF_ERROR(ReadMessage(deps, *bytes, &message, request));
  const std::vector<const Row*> variants =
      VariantsFor(deps, {&request->kernel(), request->problem()}, message,
                  deps.engine->device(request->trace().device).properties());
  message.clear_implementations();
  std::vector<int> rows;
  for (const Row* const variant : variants) {
    rows.push_back(variant->id);
    message.add_implementations(PinnedName(variant->implementation));
  }
  RETURN_IF_ERROR(request->CheckPolicy(request->device(), rows));
  *bytes = message.SerializeAsString();
  return inspect::BenchmarkBytes(request->problem());
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

void SetBandwidthFrom(const std::string& response, int device, Engine* engine) {
  v1::BenchmarkResponse parsed;
  if (parsed.ParseFromString(response))
    engine->SetBandwidth(device, parsed.ceiling_bytes_per_second());
}

void SetMultiplyAddsFrom(const std::string& response, int device, Arithmetic arithmetic,
                         Engine* engine) {
  v1::BenchmarkResponse parsed;
  if (parsed.ParseFromString(response) && parsed.flops_ceiling() > 0)
    engine->SetMultiplyAdds(device, arithmetic, parsed.flops_ceiling());
}

absl::StatusOr<std::string> AnswerBenchmark(const Registry& registry, Device* device,
                                            const BenchmarkToAnswer& benchmark) {
  v1::BenchmarkRequest request;
  RETURN_IF_ERROR(ParseSmall(benchmark.bytes, &request));
  CheckedBenchmark checked;
  ASSIGN_OR_RETURN(checked, Check(registry, request));
  const DeviceProperties& properties = device->properties();
  inspect::BenchmarkPlan plan =
      ToPlan(request, checked, RowsFor(registry, checked, request, properties));
  plan.deadline_ns = MeasureUntil(benchmark.deadline_ns, MonotonicNs());
  const auto surroundings =
      inspect::NewSurroundings(properties, inspect::NewLinuxMachine(getppid()));
  inspect::BenchmarkSite site{
      &registry,      device, surroundings.get(), benchmark.conditions, benchmark.multiply_adds,
      benchmark.reads};
  if (benchmark.tell != nullptr)
    site.tell = [&](const v1::BenchmarkResponse& news) {
      benchmark.tell(news.SerializeAsString());
    };
  ASSIGN_OR_RETURN(v1::BenchmarkResponse response, inspect::RunBenchmark(site, plan, {}));
  if (benchmark.tell != nullptr) LeaveVerdicts(&response);
  response.mutable_stamp()->set_server_version(benchmark.server_version);
  response.mutable_stamp()->set_cuda(benchmark.cuda_version);
  return response.SerializeAsString();
}

}  // namespace warpcall
