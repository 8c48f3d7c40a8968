#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/manifest_comment.h"
#include "proto/common/status_macros.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/describe.h"
#include "server/inspect/surroundings.h"
#include "server/judge/judge.h"
#include "server/transport/codec.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

constexpr int kProblemsMax = 64;

absl::StatusOr<std::string> ManifestOf(const v1::PushRequest& request) {
  if (request.code().empty())
    return absl::InvalidArgumentError("the push has no code: it takes CUDA C++");
  if (request.code().size() > static_cast<size_t>(kPushCodeBytesMax))
    return absl::InvalidArgumentError(absl::StrCat("the code has ", request.code().size(),
                                                   " bytes; the limit is ", kPushCodeBytesMax));
  if (!request.manifest_json().empty()) return request.manifest_json();
  return FindManifest(request.code());
}

// Ops without a definition have nothing to be judged by.
const Op* FindOp(const Registry& registry, absl::string_view name) {
  const absl::StatusOr<const Kernel*> kernel = registry.Find(name);
  if (!kernel.ok() || (*kernel)->op->definition == nullptr || (*kernel)->op->cases == nullptr)
    return nullptr;
  return (*kernel)->op;
}

absl::StatusOr<manifest::KernelManifest> ReadManifest(const Registry& registry,
                                                      const std::string& json) {
  return manifest::ReadKernelManifest(
      json, [&](absl::string_view name) { return FindOp(registry, name); });
}

// An attribute that a problem does not name has the manifest's value.
absl::StatusOr<Problem> ToProblem(const v1::PushProblem& pushed,
                                  const manifest::KernelManifest& manifest) {
  google::protobuf::Map<std::string, v1::Attribute> attributes = pushed.attributes();
  for (const auto& [name, value] : manifest.attributes)
    if (!attributes.contains(name)) attributes[name] = inspect::ToProto(value);
  return ToProblem(pushed.inputs(), attributes, *manifest.op);
}

// The problems that the caller names.
absl::StatusOr<std::vector<Problem>> ProblemsOf(const v1::PushRequest& request,
                                                const manifest::KernelManifest& manifest) {
  std::vector<Problem> problems;
  for (int i = 0; i < request.problems_size(); ++i) {
    absl::StatusOr<Problem> problem = ToProblem(request.problems(i), manifest);
    if (problem.ok() && problem->outputs[0].elements() == 0)
      problem = absl::InvalidArgumentError("its output has no elements");
    if (!problem.ok())
      return absl::Status(problem.status().code(),
                          absl::StrCat("problem ", i, ": ", problem.status().message()));
    problems.push_back(*std::move(problem));
  }
  return problems;
}

absl::Status CheckMessage(const v1::PushRequest& request) {
  if (request.serve())
    return absl::UnimplementedError(
        "this server judges pushes and does not serve them yet: leave `serve` out");
  RETURN_IF_ERROR(CheckCount("iterations", request.iterations(), kBenchmarkIterationsMax));
  RETURN_IF_ERROR(CheckCount("timeout_ns", request.timeout_ns(), kPushNsMax));
  if (request.problems_size() > kProblemsMax)
    return absl::InvalidArgumentError(
        absl::StrCat(request.problems_size(), " problems are named; the limit is ", kProblemsMax));
  return absl::OkStatus();
}

bool ComparesWithNone(const v1::PushRequest& request) {
  return request.compare_with_size() == 1 && request.compare_with(0) == judge::kNoOthers;
}

// Of those that pushes may use: the one that is named, else the first GPU, else the CPU, which only
// compiles.
absl::StatusOr<int> DeviceFor(const ExecuteDeps& deps, const std::string& name) {
  const std::vector<std::string>& allowed = deps.limits.push.devices;
  const auto may_use = [&](const std::string& device) {
    return allowed.empty() || absl::c_linear_search(allowed, device);
  };
  if (!name.empty() && !may_use(name))
    return absl::PermissionDeniedError(
        absl::StrCat("pushes may use ", absl::StrJoin(allowed, ", "), ", not ", name, " (push)"));
  int last = -1;
  std::vector<std::string> names;
  for (int i = 0; i < deps.engine->device_count(); ++i) {
    const DeviceProperties& device = deps.engine->device(i).properties();
    names.push_back(device.name);
    if (device.name == name) return i;
    if (!name.empty()) continue;
    if (device.kind == DeviceKind::kCuda && may_use(device.name)) return i;
    last = i;
  }
  if (name.empty()) return last;
  return absl::NotFoundError(absl::StrCat(
      "device \"", name, "\" does not exist; available: ", absl::StrJoin(names, ", ")));
}

// Bytes of operands of the largest problem that is certain to be tried.
int64_t OperandBytes(const manifest::KernelManifest& manifest,
                     const std::vector<Problem>& problems) {
  int64_t bytes = 0;
  for (const Problem& problem : problems) bytes = std::max(bytes, inspect::BenchmarkBytes(problem));
  if (!problems.empty()) return bytes;
  for (const std::vector<Dims>& example : manifest.examples) {
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : example) inputs.push_back({manifest.types[0], dims});
    const auto problem = MakeProblem(*manifest.op, inputs, AttributesOf(manifest));
    if (problem.ok()) bytes = std::max(bytes, inspect::BenchmarkBytes(*problem));
  }
  return bytes;
}

uint64_t NewSeed() {
  std::random_device device;
  const uint64_t seed = (uint64_t{device()} << 32) | device();
  return seed == 0 ? 1 : seed;
}

std::string ToEvent(v1::PushVerdict verdict, const BenchmarkToAnswer& server) {
  v1::PushEvent event;
  verdict.mutable_stamp()->set_server_version(server.server_version);
  verdict.mutable_stamp()->set_cuda(server.cuda_version);
  verdict.mutable_stamp()->set_seed(verdict.seed());
  *event.mutable_verdict() = std::move(verdict);
  return event.SerializeAsString();
}

}  // namespace

absl::Status CheckPushAccess(const PushAccess& access, const Request& request,
                             absl::string_view peer) {
  if (!access.on) return absl::PermissionDeniedError("Push is off on this server (push is off)");
  if (request.IsNamedFor("Push")) return absl::OkStatus();
  if (request.HasPolicy() || !request.caller()->name.empty())
    return absl::PermissionDeniedError(
        "Push is for principals whose policy names it: add \"Push\" to their methods "
        "(policy_file)");
  if (IsOnThisMachine(peer)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("Push is for callers on this server's machine, which ", peer,
                   " is not, and for principals whose policy names it (policy_file)"));
}

std::string QueuedEvent(int before) {
  v1::PushEvent event;
  event.mutable_queued()->set_before(before);
  return event.SerializeAsString();
}

v1::PushVerdict RecordPushEvent(const std::string& bytes, int64_t ns, MetricsSink* metrics) {
  v1::PushEvent event;
  if (!event.ParseFromString(bytes)) return {};
  if (event.has_compiled())
    metrics->RecordPushStage(PushStage::kCompile, event.compiled().compile_ns());
  if (event.has_checked()) metrics->RecordPushStage(PushStage::kCheck, ns);
  if (event.has_timed()) metrics->RecordPushStage(PushStage::kTime, ns);
  for (int i = 0; i < kFindingCount; ++i)
    if (event.verdict().status() == FindingName(static_cast<Finding>(i)))
      metrics->RecordPush(static_cast<Finding>(i));
  return event.verdict();
}

absl::StatusOr<int64_t> ReadPush(const ExecuteDeps& deps, const std::string& bytes,
                                 Request* request) {
  v1::PushRequest message;
  RETURN_IF_ERROR(ParseSmall(bytes, &message));
  RETURN_IF_ERROR(CheckMessage(message));
  ASSIGN_OR_RETURN(const std::string json, ManifestOf(message));
  CallSpec spec = {.kernel = "", .implementation = "", .device = "", .request_id = ""};
  spec.timeout_ns = message.timeout_ns() > 0 ? message.timeout_ns() : kNoDeadline;
  ASSIGN_OR_RETURN(request->trace().device, DeviceFor(deps, message.device()));
  spec.device = request->device();
  const absl::StatusOr<manifest::KernelManifest> manifest = ReadManifest(*deps.registry, json);
  if (!manifest.ok()) {
    request->LimitTime(spec.timeout_ns);
    return int64_t{0};
  }
  spec.kernel = manifest->op->name;
  RETURN_IF_ERROR(request->ReadKernel(std::move(spec)));
  if (!ComparesWithNone(message)) {
    RETURN_IF_ERROR(
        CheckImplementations(*deps.registry, request->kernel(), message.compare_with()));
    RETURN_IF_ERROR(CheckPolicyFor(*deps.registry, *request, message.compare_with()));
  }
  ASSIGN_OR_RETURN(const std::vector<Problem> problems, ProblemsOf(message, *manifest));
  return OperandBytes(*manifest, problems);
}

absl::StatusOr<std::string> AnswerPush(const Registry& registry, const PushToAnswer& push) {
  const BenchmarkToAnswer& server = push.benchmark;
  v1::PushRequest request;
  RETURN_IF_ERROR(ParseSmall(server.bytes, &request));
  ASSIGN_OR_RETURN(const std::string json, ManifestOf(request));
  const absl::StatusOr<manifest::KernelManifest> manifest = ReadManifest(registry, json);
  if (!manifest.ok())
    return ToEvent(judge::VerdictOnManifest(std::string(manifest.status().message())), server);
  judge::Candidate candidate;
  candidate.manifest = &*manifest;
  candidate.code = request.code();
  ASSIGN_OR_RETURN(candidate.problems, ProblemsOf(request, *manifest));
  candidate.seed = request.seed() == 0 ? NewSeed() : request.seed();
  candidate.iterations = request.iterations();
  candidate.compare_with.assign(request.compare_with().begin(), request.compare_with().end());
  candidate.check_only = request.check_only();
  candidate.with_files = request.with_files();
  candidate.deadline_ns = MeasureUntil(server.deadline_ns, MonotonicNs());
  candidate.limit_ns = push.limit_ns;
  const auto surroundings =
      inspect::NewSurroundings(push.device, inspect::NewLinuxMachine(getppid()));
  judge::JudgeSite site;
  site.registry = &registry;
  site.device = push.device;
  site.compile = push.compile;
  site.open = push.open;
  site.surroundings = surroundings.get();
  site.multiply_adds = server.multiply_adds;
  site.launch_time_max = push.launch_time_max;
  site.tell = [&](const v1::PushEvent& event) { server.tell(event.SerializeAsString()); };
  site.give_up = [&](const v1::PushVerdict& verdict) { push.give_up(ToEvent(verdict, server)); };
  ASSIGN_OR_RETURN(v1::PushVerdict verdict, judge::JudgeCandidate(site, candidate));
  return ToEvent(std::move(verdict), server);
}

}  // namespace warpcall
