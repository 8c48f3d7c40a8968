#include "server/engine/execution.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/phases.h"
#include "server/engine/refusal.h"
#include "server/engine/run_watch.h"
#include "server/runtime/plan_site.h"

namespace warpcall {
namespace {

// Larger workspaces are returned after the job, so that one odd request does not keep memory for
// good. A device that pools its memory gets all workspaces back.
constexpr size_t kWorkspaceKeptBytesMax = size_t{256} << 20;
// A lane has so much device memory that lies at one place for good.
constexpr size_t kFixedBytes = size_t{1} << 20;
// Pushback when device memory is short: about one large job's time.
constexpr int64_t kMemoryPushbackMs = 200;

// Reports each step of a graph as a phase of its kernel's name while somebody watches phases.
// Passes the stamps on to the clock that the context has, if it has one.
class StepPhases final : public StepClock {
 public:
  StepPhases(const Job& job, LaunchContext* context)
      : graph_(job.problem.graph.get()), request_(job.key.id), clock_(context->step_clock) {
    if (graph_ != nullptr && phase_watcher.load(std::memory_order_acquire) != nullptr)
      context->step_clock = this;
  }

  absl::Status Begin(int steps) override {
    return clock_ == nullptr ? absl::OkStatus() : clock_->Begin(steps);
  }
  absl::Status Stamp() override {
    if (phase_.has_value())
      phase_.reset();
    else
      phase_.emplace(graph_->steps()[next_++].op->name, request_);
    return clock_ == nullptr ? absl::OkStatus() : clock_->Stamp();
  }
  absl::Status End() override { return clock_ == nullptr ? absl::OkStatus() : clock_->End(); }

 private:
  const StepGraph* const graph_;
  const uint64_t request_;
  StepClock* const clock_;
  size_t next_ = 0;
  std::optional<Phase> phase_;
};

// True if an operand of which each part has its own piece stays on the device: such a job is one
// round.
bool HasSplitResident(const Job& job) {
  for (size_t i = 0; i < job.residents.size(); ++i)
    if (job.IsResident(i) && job.op != nullptr &&
        RoleOf(*job.op, job.problem, i) == OperandRole::kSplit)
      return true;
  return false;
}

// Bytes of all operands, those that stay on the device included: a kernel reads a small operand as
// often as a large one beside it makes it, and over PCIe where it lies in host memory.
size_t OperandBytes(const Problem& problem) {
  size_t bytes = 0;
  for (const TensorSpec& spec : problem.inputs) bytes += spec.bytes();
  for (const TensorSpec& spec : problem.outputs) bytes += spec.bytes();
  return bytes;
}

size_t AlignedBytes(size_t bytes) {
  return CeilDivide(static_cast<int64_t>(bytes), kOperandAlignmentBytes) * kOperandAlignmentBytes;
}

bool KeepsAny(const Job& job) {
  for (size_t i = job.problem.inputs.size(); i < job.residents.size(); ++i)
    if (job.IsResident(i)) return true;
  return false;
}

bool HasFewCopies(const Job& job) {
  return job.problem.inputs.size() <= RecordedCopies::kCountMax &&
         job.problem.outputs.size() <= RecordedCopies::kCountMax;
}

}  // namespace

absl::Status RefuseForMemory(absl::Status status) {
  if (!absl::IsResourceExhausted(status)) return status;
  return RefuseFor(RejectReason::kDeviceMemory, std::move(status), kMemoryPushbackMs);
}

struct Execution::Placement {
  // Where an operand comes from or goes to: the same for two jobs on the same memory.
  char* Home(size_t i) const { return staging[i] == nullptr ? operands[i] : staging[i]; }

  absl::InlinedVector<char*, 3> staging;   // per operand, inputs first; null: it is not there
  absl::InlinedVector<char*, 3> operands;  // where kernels see them
  absl::InlinedVector<size_t, 3> bytes;    // of that memory
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  absl::InlinedVector<Buffer, 3> device_memory;
  bool repeats = true;          // all of this lies at the same place when the job comes again
  char* graph_place = nullptr;  // where all operands lie that do not stay; null: elsewhere
  bool records_copies = true;   // with the kernels; else they are made around a recording
  // Indexed by Cut::KindOf; kept until the device is done with the job.
  PlanPtr plans[2];
};

struct Execution::Cut {
  bool mirrored = false;  // operands lie in device memory and are copied
  Rounds rounds;
  const Problem* whole = nullptr;
  absl::InlinedVector<Problem, 2> parts;  // if more than one round: all but the last, and the last

  // All rounds except the last are alike.
  size_t KindOf(int64_t round) const { return !parts.empty() && round == rounds.count - 1 ? 1 : 0; }
  const Problem& ProblemOf(int64_t round) const {
    return parts.empty() ? *whole : parts[KindOf(round)];
  }
};

struct Execution::Piece {
  Piece(const Placement& placement, const Cut& cut, int64_t round)
      : problem(cut.ProblemOf(round)), kind(cut.KindOf(round)) {
    const auto add = [&](const TensorSpec& spec) {
      const size_t i = offsets.size();
      offsets.push_back(cut.parts.empty() ? 0 : cut.rounds.Offset(round, i));
      bytes.push_back(spec.bytes());
      WARPCALL_CHECK(offsets.back() + bytes.back() <= placement.bytes[i], round, i, bytes.back(),
                     placement.bytes[i]);
      return placement.operands[i] == nullptr ? nullptr : placement.operands[i] + offsets[i];
    };
    for (const TensorSpec& spec : problem.inputs) operands.inputs.push_back(add(spec));
    for (const TensorSpec& spec : problem.outputs) operands.outputs.push_back(add(spec));
  }

  const Problem& problem;
  const size_t kind;
  Operands operands;
  absl::InlinedVector<size_t, 3> offsets;  // per operand, into the whole one
  absl::InlinedVector<size_t, 3> bytes;
};

Execution::Execution(Device* device, std::unique_ptr<Stream> stream, Clock clock)
    : device_(device),
      stream_(std::move(stream)),
      clock_(std::move(clock)),
      repeats_(stream_.get()),
      graph_memory_(stream_.get(), device_->graph_bytes_max()) {
  WARPCALL_DCHECK(device_ != nullptr && stream_ != nullptr && clock_ != nullptr);
}

absl::Status Execution::Run(const Job& job, absl::Span<const StagingRange> staging) {
  WARPCALL_DCHECK(job.row != nullptr && job.trace != nullptr, job.key.id);
  WARPCALL_CHECK(staging.size() == job.problem.inputs.size() + job.problem.outputs.size(),
                 job.key.id, staging.size());
  if (!device_->healthy())
    return absl::UnavailableError(absl::StrCat(device_->properties().name, " was lost"));
  const absl::Cleanup drop_workspace = [this] {
    if (device_->pools_memory() || workspace_.bytes() > kWorkspaceKeptBytesMax)
      workspace_ = Buffer();
  };
  const Cut cut = CutUp(job);
  absl::StatusOr<Placement> placement = [&] {
    const Phase phase("place", job.key.id);
    return Place(job, staging, cut);
  }();
  if (!placement.ok()) return RefuseForMemory(std::move(placement).status());
  absl::Status status = MakePlans(job, cut, &*placement);
  if (status.ok()) status = RunPlaced(job, cut, *placement);
  // Work enqueued before an error may still touch memory that other jobs get next.
  if (!status.ok()) stream_->Synchronize().IgnoreError();
  return RefuseForMemory(std::move(status));
}

// A graph's operands are where a recording of it finds them; others are where kernels reach them.
bool Execution::IsMirrored(const Job& job) const {
  if (job.problem.graph != nullptr && stream_->records()) return true;
  return !device_->KernelsUseStaging(OperandBytes(job.problem),
                                     job.row->implementation.suits_host_memory);
}

Execution::Cut Execution::CutUp(const Job& job) const {
  Cut cut{.mirrored = IsMirrored(job), .rounds = {}, .whole = &job.problem, .parts = {}};
  if (cut.mirrored && !HasSplitResident(job))
    cut.rounds = PlanRounds(job.op, job.row->implementation, job.problem, *device_);
  if (cut.rounds.count > 1)
    for (const int64_t round : {int64_t{0}, cut.rounds.count - 1})
      cut.parts.push_back(TakeParts(*job.op, job.problem, cut.rounds.PartsIn(round)));
  return cut;
}

absl::StatusOr<Execution::Placement> Execution::Place(const Job& job,
                                                      absl::Span<const StagingRange> staging,
                                                      const Cut& cut) {
  Placement placement;
  fixed_used_ = 0;
  size_t copied_bytes = 0;
  for (const StagingRange& range : staging) copied_bytes += range.bytes;
  // A recording copies no more.
  const bool is_small = copied_bytes <= RecordedCopies::kBytesMax;
  char* place = FindGraphPlace(job, staging, cut);
  placement.graph_place = place;
  placement.records_copies = place == nullptr || (is_small && !KeepsAny(job) && HasFewCopies(job));
  const auto take_place = [&place](size_t bytes) {
    return std::exchange(place, place + AlignedBytes(bytes));
  };
  for (size_t i = 0; i < staging.size(); ++i) {
    if (job.IsResident(i)) {
      RETURN_IF_ERROR(job.residents[i].content->Allocate(
          [this](size_t bytes) { return device_->AllocateResident(bytes); }));
      placement.staging.push_back(nullptr);
      placement.operands.push_back(job.residents[i].data());
      placement.bytes.push_back(job.residents[i].bytes());
      // What stays is copied there from memory that is the same the next time.
      if (place != nullptr && i >= job.problem.inputs.size()) {
        placement.staging.back() = placement.operands.back();
        placement.operands.back() = take_place(placement.bytes.back());
      }
      continue;
    }
    const StagingRange& range = staging[i];
    placement.staging.push_back(range.data);
    placement.operands.push_back(range.data);
    placement.bytes.push_back(range.bytes);
    if (!cut.mirrored) continue;
    if (place != nullptr) {
      placement.operands.back() = take_place(range.bytes);
      continue;
    }
    if (is_small) {
      ASSIGN_OR_RETURN(char* const fixed, TakeFixed(range.bytes));
      if (fixed != nullptr) {
        placement.operands.back() = fixed;
        continue;
      }
    }
    Buffer memory;
    ASSIGN_OR_RETURN(memory, stream_->AllocateMemory(range.bytes));
    placement.repeats = false;
    placement.operands.back() = static_cast<char*>(memory.data());
    placement.device_memory.push_back(std::move(memory));
  }
  return placement;
}

absl::Status Execution::MakePlans(const Job& job, const Cut& cut, Placement* placement) {
  size_t workspace_bytes = 0;
  const auto make = [&](int64_t round) -> absl::Status {
    const Piece piece(*placement, cut, round);
    PlanPtr& plan = placement->plans[piece.kind];
    ASSIGN_OR_RETURN(plan, device_->plans().GetOrMake(*job.row, piece.problem,
                                                      [&] { return MakePlan(job, piece); }));
    workspace_bytes = std::max(workspace_bytes, plan->traits().workspace_bytes);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(make(0));
  if (!cut.parts.empty()) RETURN_IF_ERROR(make(cut.rounds.count - 1));
  if (placement->graph_place != nullptr) {
    placement->workspace = graph_memory_.Workspace(workspace_bytes);
  } else {
    ASSIGN_OR_RETURN(placement->workspace, TakeFixed(workspace_bytes));
  }
  if (placement->workspace == nullptr && workspace_bytes > 0) {
    ASSIGN_OR_RETURN(placement->workspace, Workspace(workspace_bytes));
    placement->repeats = false;
  }
  placement->workspace_bytes = workspace_bytes;
  return absl::OkStatus();
}

char* Execution::FindGraphPlace(const Job& job, absl::Span<const StagingRange> staging,
                                const Cut& cut) {
  if (job.problem.graph == nullptr || !cut.mirrored || !stream_->records()) return nullptr;
  size_t bytes = 0;
  for (size_t i = 0; i < staging.size(); ++i) {
    if (!job.IsResident(i))
      bytes += AlignedBytes(staging[i].bytes);
    else if (i >= job.problem.inputs.size())
      bytes += AlignedBytes(job.residents[i].bytes());
  }
  const GraphMemory::Place* const place = graph_memory_.Find(job.problem, bytes);
  return place == nullptr ? nullptr : static_cast<char*>(place->operands.data());
}

absl::StatusOr<char*> Execution::TakeFixed(size_t bytes) {
  const size_t aligned = AlignedBytes(bytes);
  if (!stream_->records() || aligned == 0 || fixed_used_ + aligned > kFixedBytes) return nullptr;
  if (fixed_.data() == nullptr) {
    ASSIGN_OR_RETURN(fixed_, stream_->AllocateMemory(kFixedBytes));
  }
  char* const memory = static_cast<char*>(fixed_.data()) + fixed_used_;
  fixed_used_ += aligned;
  return memory;
}

absl::StatusOr<PlanPtr> Execution::MakePlan(const Job& job, const Piece& piece) {
  const Phase phase("prepare", job.key.id);
  std::vector<Buffer> memory;
  const auto workspace = [&](size_t bytes) -> absl::StatusOr<void*> {
    if (bytes == 0) return nullptr;
    ASSIGN_OR_RETURN(Buffer buffer, stream_->AllocateMemory(bytes));
    return memory.emplace_back(std::move(buffer)).data();
  };
  return MakePlanOn({.stream = stream_.get(),
                     .device = &device_->properties(),
                     .operands = &piece.operands,
                     .workspace = workspace,
                     .stop = job.watch,
                     .plans = &device_->plans()},
                    job.row->implementation, piece.problem);
}

// Returns the lane's workspace, at least that large.
absl::StatusOr<void*> Execution::Workspace(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > workspace_.bytes()) {
    workspace_ = Buffer();
    ASSIGN_OR_RETURN(workspace_, stream_->AllocateMemory(bytes));
  }
  return workspace_.data();
}

bool Execution::TimesSteps(const Job& job) const {
  return job.trace->graph != nullptr &&
         (job.problem.graph->times_steps() || stream_->times_steps_for_free());
}

absl::Status Execution::RunPlaced(const Job& job, const Cut& cut, const Placement& placement) {
  const int64_t start_ns = clock_();
  RETURN_IF_ERROR(Enqueue(job, placement, cut));
  // Read while the device works.
  RETURN_IF_ERROR(RecordShape(job, placement, cut));
  RETURN_IF_ERROR(Wait(job));
  RequestTrace& trace = *job.trace;
  trace.device_ns = clock_() - start_ns;
  const StreamTimes times = stream_->Times();
  trace.h2d_ns = times.h2d_ns;
  trace.kernel_ns = times.kernel_ns;
  trace.d2h_ns = times.d2h_ns;
  if (TimesSteps(job)) trace.graph->step_ns = stream_->StepTimes();
  return absl::OkStatus();
}

absl::Status Execution::Wait(const Job& job) {
  const Phase phase("wait", job.key.id);
  return stream_->Synchronize();
}

absl::Status Execution::Enqueue(const Job& job, const Placement& placement, const Cut& cut) {
  const Phase phase("enqueue", job.key.id);
  const int recording = RecordingOf(job, placement, cut);
  if (job.trace->graph != nullptr) job.trace->graph->replayed = recording >= 0;
  if (recording >= 0 && placement.records_copies) return stream_->Replay(recording);
  RETURN_IF_ERROR(stream_->Begin(static_cast<int>(cut.rounds.count)));
  for (int64_t round = 0; round < cut.rounds.count; ++round)
    RETURN_IF_ERROR(EnqueueRound(job, placement, cut, {round, recording}));
  return absl::OkStatus();
}

int Execution::RecordingOf(const Job& job, const Placement& placement, const Cut& cut) {
  if (!placement.plans[0]->traits().may_be_replayed || !placement.repeats ||
      cut.rounds.count != 1 || !stream_->records())
    return -1;
  const Piece piece(placement, cut, 0);
  const auto place_of = [&placement](size_t i) {
    return placement.records_copies ? placement.Home(i) : placement.operands[i];
  };
  Operands places;
  for (size_t i = 0; i < piece.operands.inputs.size(); ++i) places.inputs.push_back(place_of(i));
  for (size_t i = 0; i < piece.operands.outputs.size(); ++i)
    places.outputs.push_back(place_of(piece.operands.inputs.size() + i));
  places.outputs.push_back(placement.workspace);
  // Staging says nothing about a place that was given to another graph meanwhile.
  places.outputs.push_back(placement.graph_place);
  return repeats_.RecordingOf(placement.plans[0], places, RunsOf(job, placement),
                              [&] { return Record(job, placement, piece); });
}

// Counts a graph's runs on all lanes, since one client's calls may take any of them. Its memory is
// the same whenever it comes, but for tensors that stay.
int Execution::RunsOf(const Job& job, const Placement& placement) const {
  if (placement.graph_place == nullptr) return 0;
  absl::InlinedVector<const void*, 2> residents;
  for (size_t i = 0; i < job.problem.inputs.size(); ++i)
    residents.push_back(job.IsResident(i) ? placement.operands[i] : nullptr);
  return device_->run_counts().Add(*placement.plans[0], residents);
}

absl::StatusOr<int> Execution::Record(const Job& job, const Placement& placement,
                                      const Piece& piece) {
  RecordedCopies copies;
  const size_t input_count = piece.operands.inputs.size();
  for (size_t i = 0; placement.records_copies && i < placement.operands.size(); ++i) {
    char* const staging = placement.staging[i];
    char* const operand = placement.operands[i];
    if (staging == nullptr || staging == operand) continue;
    if (i < input_count)
      copies.inputs.push_back({operand, staging, piece.bytes[i]});
    else
      copies.outputs.push_back({staging, operand, piece.bytes[i]});
  }
  // Other jobs replay it, whether or not this one is still wanted: a graph would leave out steps.
  return stream_->Record([&] { return EnqueuePlan(job, piece, placement, /*stop=*/nullptr); },
                         copies);
}

absl::Status Execution::EnqueueRound(const Job& job, const Placement& placement, const Cut& cut,
                                     const Round& of) {
  const int64_t round = of.number;
  const Piece piece(placement, cut, round);
  const size_t input_count = piece.problem.inputs.size();
  RETURN_IF_ERROR(stream_->Mark(Milestone::kStart));
  for (size_t i = 0; cut.mirrored && i < input_count; ++i) {
    if (cut.rounds.IsThere(round, i) || job.IsResident(i)) continue;
    RETURN_IF_ERROR(stream_->CopyToDevice(placement.operands[i] + piece.offsets[i],
                                          placement.staging[i] + piece.offsets[i], piece.bytes[i]));
  }
  RETURN_IF_ERROR(stream_->Mark(Milestone::kInputsReady));
  RETURN_IF_ERROR(of.recording >= 0 ? stream_->ReplayInRound(of.recording)
                                    : Launch(job, piece, placement));
  RETURN_IF_ERROR(stream_->Mark(Milestone::kKernelDone));
  for (size_t i = input_count; cut.mirrored && i < piece.offsets.size(); ++i)
    if (placement.staging[i] != nullptr)
      RETURN_IF_ERROR(stream_->CopyToStaging(placement.staging[i] + piece.offsets[i],
                                             placement.operands[i] + piece.offsets[i],
                                             piece.bytes[i]));
  return stream_->Mark(Milestone::kOutputsReady);
}

// On the CPU device this runs the kernel itself.
absl::Status Execution::Launch(const Job& job, const Piece& piece, const Placement& placement) {
  WARPCALL_CHECK(placement.plans[piece.kind] != nullptr, job.key.id, piece.kind);
  WARPCALL_DCHECK(
      placement.plans[piece.kind]->traits().workspace_bytes <= placement.workspace_bytes,
      job.row->implementation.name, placement.workspace_bytes);
  const Phase phase(job.row->implementation.name, job.key.id);
  return EnqueuePlan(job, piece, placement, job.watch);
}

absl::Status Execution::EnqueuePlan(const Job& job, const Piece& piece, const Placement& placement,
                                    const StopFlag* stop) {
  LaunchContext context;
  context.stream = stream_->native_handle();
  context.workspace = placement.workspace;
  if (TimesSteps(job)) context.step_clock = stream_->step_clock();
  context.stop = stop;
  StepPhases phases(job, &context);
  return placement.plans[piece.kind]->Enqueue(piece.operands, context);
}

absl::Status Execution::RecordShape(const Job& job, const Placement& placement, const Cut& cut) {
  ASSIGN_OR_RETURN(job.trace->launch, placement.plans[0]->shape());
  job.trace->launch.gpu_kernels *= static_cast<int32_t>(cut.rounds.count);
  if (job.trace->graph == nullptr) return absl::OkStatus();
  std::vector<LaunchShape>& launches = job.trace->graph->launches;
  launches.clear();
  for (const PlanPtr& step : placement.plans[0]->Steps()) {
    ASSIGN_OR_RETURN(launches.emplace_back(), step->shape());
  }
  return absl::OkStatus();
}

}  // namespace warpcall
