#include "server/engine/execution.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "server/engine/phases.h"
#include "server/engine/retry_pushback.h"
#include "server/engine/run_watch.h"

namespace warpcall {
namespace {

// Larger workspaces are returned after the job, so that one odd request does not keep memory for
// good.
constexpr size_t kWorkspaceKeptBytesMax = size_t{256} << 20;
// When device memory is short: about one large job's time.
constexpr int64_t kMemoryPushbackMs = 200;

absl::Status NoteRefusal(absl::Status status, RequestTrace* trace) {
  if (absl::IsResourceExhausted(status)) {
    trace->reject_reason = RejectReason::kDeviceMemory;
    return WithRetryPushback(std::move(status), kMemoryPushbackMs);
  }
  return status;
}

}  // namespace

struct Execution::Placement {
  absl::InlinedVector<char*, 3> staging;   // per operand, inputs first
  absl::InlinedVector<char*, 3> operands;  // where kernels see them
  void* workspace = nullptr;
  absl::InlinedVector<Buffer, 3> device_memory;
  // By Cut::KindOf: kept until the device is done with the job.
  std::shared_ptr<const void> plans[2];
};

struct Execution::Cut {
  bool mirrored = false;  // operands lie in device memory and are copied
  Rounds rounds;
  const Problem* whole = nullptr;
  absl::InlinedVector<Problem, 2> parts;  // of more than one round: all but the last, and the last

  // All rounds are alike but the last.
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

Execution::Execution(const Device* device, std::unique_ptr<Stream> stream, Clock clock)
    : device_(device),
      stream_(std::move(stream)),
      clock_(std::move(clock)),
      repeats_(stream_.get()) {}

absl::Status Execution::Run(const Job& job, absl::Span<const StagingRange> staging) {
  if (!device_->healthy())
    return absl::UnavailableError(absl::StrCat(device_->properties().name, " was lost"));
  const bool mirrored =
      !device_->KernelsUseStaging(static_cast<size_t>(job.input_bytes + job.output_bytes),
                                  job.row->implementation.suits_host_memory);
  const absl::Cleanup drop_large_workspace = [this] {
    if (workspace_.bytes() > kWorkspaceKeptBytesMax) workspace_ = Buffer();
  };
  const Cut cut = CutUp(job, mirrored);
  absl::StatusOr<Placement> placement = Place(job, staging, cut);
  if (!placement.ok()) return NoteRefusal(std::move(placement).status(), job.trace);
  absl::Status status = RunPlaced(job, cut, &*placement);
  // Whatever was enqueued before an error may still touch memory that others get next.
  if (!status.ok()) stream_->Synchronize().IgnoreError();
  return NoteRefusal(std::move(status), job.trace);
}

Execution::Cut Execution::CutUp(const Job& job, bool mirrored) const {
  Cut cut{.mirrored = mirrored, .rounds = {}, .whole = &job.problem, .parts = {}};
  if (mirrored) cut.rounds = PlanRounds(job.op, job.row->implementation, job.problem, *device_);
  if (cut.rounds.count > 1)
    for (const int64_t round : {int64_t{0}, cut.rounds.count - 1})
      cut.parts.push_back(TakeParts(*job.op, job.problem, cut.rounds.PartsIn(round)));
  return cut;
}

absl::StatusOr<Execution::Placement> Execution::Place(const Job& job,
                                                      absl::Span<const StagingRange> staging,
                                                      const Cut& cut) {
  const Phase phase("place", job.key.id);
  Placement placement;
  for (const StagingRange& range : staging) {
    placement.staging.push_back(range.data);
    placement.operands.push_back(range.data);
    if (!cut.mirrored) continue;
    Buffer memory;
    ASSIGN_OR_RETURN(memory, stream_->AllocateMemory(range.bytes));
    placement.operands.back() = static_cast<char*>(memory.data());
    placement.device_memory.push_back(std::move(memory));
  }
  ASSIGN_OR_RETURN(placement.workspace, Workspace(job, cut));
  return placement;
}

absl::StatusOr<void*> Execution::Workspace(const Job& job, const Cut& cut) {
  const Implementation& row = job.row->implementation;
  if (row.workspace_bytes == nullptr) return nullptr;
  size_t bytes = row.workspace_bytes(cut.ProblemOf(0), device_->properties());
  if (!cut.parts.empty())
    bytes = std::max(bytes, row.workspace_bytes(cut.parts[1], device_->properties()));
  if (bytes > workspace_.bytes()) {
    workspace_ = Buffer();
    ASSIGN_OR_RETURN(workspace_, stream_->AllocateMemory(bytes));
  }
  return workspace_.data();
}

LaunchContext Execution::ContextOf(const Job& job, const Placement& placement,
                                   const Piece& piece) const {
  LaunchContext context;
  context.stream = stream_->native_handle();
  context.device = &device_->properties();
  context.workspace = placement.workspace;
  context.libraries = stream_->libraries();
  context.stop = job.watch;
  context.plan = placement.plans[piece.kind];
  return context;
}

absl::Status Execution::RunPlaced(const Job& job, const Cut& cut, Placement* placed) {
  RETURN_IF_ERROR(Prepare(job, cut, placed));
  const Placement& placement = *placed;
  const int64_t start_ns = clock_();
  RETURN_IF_ERROR(Enqueue(job, placement, cut));
  // Asked while the device works.
  RETURN_IF_ERROR(NoteShape(job, cut));
  RETURN_IF_ERROR(Wait(job));
  RequestTrace& trace = *job.trace;
  trace.device_ns = clock_() - start_ns;
  const StreamTimes times = stream_->Times();
  trace.h2d_ns = times.h2d_ns;
  trace.kernel_ns = times.kernel_ns;
  trace.d2h_ns = times.d2h_ns;
  return absl::OkStatus();
}

absl::Status Execution::Wait(const Job& job) {
  const Phase phase("wait", job.key.id);
  return stream_->Synchronize();
}

absl::Status Execution::Enqueue(const Job& job, const Placement& placement, const Cut& cut) {
  const Phase phase("enqueue", job.key.id);
  const Implementation& row = job.row->implementation;
  // A workspace lies elsewhere when the job comes again, and a library may reuse what it recorded.
  const bool replayable =
      row.may_be_replayed && row.workspace_bytes == nullptr && row.prepare == nullptr;
  if (!cut.mirrored && replayable && stream_->records()) {
    const Piece piece(placement, cut, 0);
    const int recording = repeats_.RecordingOf(*job.row, piece.problem, piece.operands, [&] {
      return row.launch(piece.problem, piece.operands, ContextOf(job, placement, piece));
    });
    if (recording >= 0) return stream_->Replay(recording);
  }
  RETURN_IF_ERROR(stream_->Begin(static_cast<int>(cut.rounds.count)));
  for (int64_t round = 0; round < cut.rounds.count; ++round)
    RETURN_IF_ERROR(EnqueueRound(job, placement, cut, round));
  return absl::OkStatus();
}

absl::Status Execution::Prepare(const Job& job, const Cut& cut, Placement* placement) {
  const Implementation& row = job.row->implementation;
  if (row.prepare == nullptr) return absl::OkStatus();
  const Phase phase("prepare", job.key.id);
  const auto prepare = [&](int64_t round) {
    const Piece piece(*placement, cut, round);
    LaunchContext context = ContextOf(job, *placement, piece);
    const absl::Status status = row.prepare(piece.problem, piece.operands, &context);
    placement->plans[piece.kind] = std::move(context.plan);
    return status;
  };
  RETURN_IF_ERROR(prepare(0));
  return cut.parts.empty() ? absl::OkStatus() : prepare(cut.rounds.count - 1);
}

absl::Status Execution::EnqueueRound(const Job& job, const Placement& placement, const Cut& cut,
                                     int64_t round) {
  const Piece piece(placement, cut, round);
  const size_t input_count = piece.problem.inputs.size();
  RETURN_IF_ERROR(stream_->Mark(Milestone::kStart));
  for (size_t i = 0; cut.mirrored && i < input_count; ++i)
    RETURN_IF_ERROR(stream_->CopyToDevice(placement.operands[i] + piece.offsets[i],
                                          placement.staging[i] + piece.offsets[i], piece.bytes[i]));
  RETURN_IF_ERROR(stream_->Mark(Milestone::kInputsReady));
  RETURN_IF_ERROR(Launch(job, piece, placement));
  RETURN_IF_ERROR(stream_->Mark(Milestone::kKernelDone));
  for (size_t i = input_count; cut.mirrored && i < piece.offsets.size(); ++i)
    RETURN_IF_ERROR(stream_->CopyToStaging(placement.staging[i] + piece.offsets[i],
                                           placement.operands[i] + piece.offsets[i],
                                           piece.bytes[i]));
  return stream_->Mark(Milestone::kOutputsReady);
}

// On the CPU device this is the kernel itself.
absl::Status Execution::Launch(const Job& job, const Piece& piece, const Placement& placement) {
  const Implementation& row = job.row->implementation;
  const Phase phase(row.name, job.key.id);
  return row.launch(piece.problem, piece.operands, ContextOf(job, placement, piece));
}

absl::Status Execution::NoteShape(const Job& job, const Cut& cut) {
  const Implementation& row = job.row->implementation;
  if (row.shape == nullptr) return absl::OkStatus();
  const Problem& problem = cut.ProblemOf(0);
  if (shape_row_ != job.row || !(shape_problem_ == problem)) {
    shape_row_ = nullptr;
    ASSIGN_OR_RETURN(shape_, row.shape(problem, device_->properties()));
    shape_problem_ = problem;
    shape_row_ = job.row;
  }
  job.trace->launch = shape_;
  job.trace->launch.gpu_kernels *= static_cast<int32_t>(cut.rounds.count);
  return absl::OkStatus();
}

}  // namespace warpcall
