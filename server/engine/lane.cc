#include "server/engine/lane.h"

#include <cstring>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "kernels/common/status_macros.h"
#include "server/engine/retry_pushback.h"

namespace warpcall {
namespace {

// A lane waits this long for staging that other jobs hold; a client that reads its responses slower
// than that must not stall the device for everyone.
constexpr int64_t kStagingWaitNs = 2'000'000'000;
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

void BusyMeter::Enter() {
  absl::MutexLock lock(&mutex_);
  if (running_++ == 0) since_ns_ = clock_();
}

void BusyMeter::Leave() {
  absl::MutexLock lock(&mutex_);
  if (--running_ == 0) busy_ns_ += clock_() - since_ns_;
}

int64_t BusyMeter::busy_ns() const {
  absl::MutexLock lock(&mutex_);
  return busy_ns_ + (running_ > 0 ? clock_() - since_ns_ : 0);
}

struct Lane::Placement {
  Operands operands;
  void* workspace = nullptr;
  bool mirrored = false;  // operands lie in device memory and are copied
  absl::InlinedVector<Buffer, 3> device_memory;
};

Lane::Lane(const LaneShared& shared, std::unique_ptr<Stream> stream)
    : shared_(shared), stream_(std::move(stream)), thread_([this] { Loop(); }) {}

Lane::~Lane() { thread_.join(); }

void Lane::Loop() {
  while (std::unique_ptr<Job> job = shared_.scheduler->Next()) {
    const int64_t start_ns = shared_.clock();
    job->trace->queue_ns = start_ns - job->submitted_ns;
    StagingBuffers outputs;
    shared_.busy->Enter();
    absl::Status status = Run(*job, &outputs);
    shared_.busy->Leave();
    if (!status.ok() && !shared_.device->healthy())
      job->trace->reject_reason = RejectReason::kDeviceLost;
    shared_.scheduler->NoteServiceTime(shared_.clock() - start_ns);
    // By value: whoever is called may be gone, with all that the job points to, when it returns.
    auto done = std::move(job->done);
    job.reset();
    done(std::move(status), std::move(outputs));
  }
}

absl::Status Lane::Run(Job& job, StagingBuffers* outputs) {
  RETURN_IF_ERROR(CheckStillWanted(job, shared_.clock()));
  StagingBuffers staging;
  ASSIGN_OR_RETURN(staging, StageIn(job));
  RETURN_IF_ERROR(CheckStillWanted(job, shared_.clock()));
  absl::StatusOr<Placement> placement = Place(job, staging);
  if (!placement.ok()) return NoteRefusal(std::move(placement).status(), job.trace);
  RETURN_IF_ERROR(NoteRefusal(Execute(job, staging, *placement), job.trace));
  job.trace->ran = true;
  for (size_t i = job.inputs.size(); i < staging.size(); ++i)
    outputs->push_back(std::move(staging[i]));
  return absl::OkStatus();
}

// Buffers for the inputs, filled, then for the outputs.
absl::StatusOr<StagingBuffers> Lane::StageIn(Job& job) {
  absl::InlinedVector<size_t, 3> sizes;
  for (const TensorSpec& spec : job.problem.inputs) sizes.push_back(spec.bytes());
  for (const TensorSpec& spec : job.problem.outputs) sizes.push_back(spec.bytes());
  const int64_t give_up_ns = shared_.clock() + kStagingWaitNs;
  absl::StatusOr<StagingBuffers> staging = shared_.staging->Allocate(sizes, [&] {
    const int64_t now_ns = shared_.clock();
    return now_ns < give_up_ns && CheckStillWanted(job, now_ns).ok();
  });
  if (!staging.ok()) {
    RETURN_IF_ERROR(CheckStillWanted(job, shared_.clock()));
    job.trace->reject_reason = RejectReason::kStagingBytes;
    return staging;
  }
  const int64_t start_ns = shared_.clock();
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    char* to = (*staging)[i].data();
    for (const absl::Span<const char>& piece : job.inputs[i]) {
      if (piece.empty()) continue;  // and perhaps null, which memcpy may not be given
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
      job.trace->copy_in_bytes += static_cast<int64_t>(piece.size());
    }
  }
  job.release_inputs();
  job.trace->copy_in_ns = shared_.clock() - start_ns;
  return staging;
}

absl::StatusOr<Lane::Placement> Lane::Place(const Job& job, const StagingBuffers& staging) {
  Placement placement;
  placement.mirrored =
      !shared_.device->KernelsUseStaging(static_cast<size_t>(job.input_bytes + job.output_bytes));
  for (size_t i = 0; i < staging.size(); ++i) {
    void* memory = staging[i].data();
    if (placement.mirrored) {
      Buffer buffer;
      ASSIGN_OR_RETURN(buffer, shared_.device->AllocateMemory(staging[i].bytes()));
      memory = buffer.data();
      placement.device_memory.push_back(std::move(buffer));
    }
    if (i < job.inputs.size())
      placement.operands.inputs.push_back(memory);
    else
      placement.operands.outputs.push_back(memory);
  }
  ASSIGN_OR_RETURN(placement.workspace, Workspace(job));
  return placement;
}

absl::StatusOr<void*> Lane::Workspace(const Job& job) {
  const Implementation& implementation = job.row->implementation;
  if (implementation.workspace_bytes == nullptr) return nullptr;
  const size_t bytes = implementation.workspace_bytes(job.problem, shared_.device->properties());
  if (bytes > workspace_.bytes()) {
    workspace_ = Buffer();
    ASSIGN_OR_RETURN(workspace_, shared_.device->AllocateMemory(bytes));
  }
  return workspace_.data();
}

absl::Status Lane::Execute(const Job& job, const StagingBuffers& staging,
                           const Placement& placement) {
  const size_t input_count = job.inputs.size();
  const absl::Cleanup drop_large_workspace = [this] {
    if (workspace_.bytes() > kWorkspaceKeptBytesMax) workspace_ = Buffer();
  };
  LaunchContext context;
  context.stream = stream_->native_handle();
  context.device = &shared_.device->properties();
  context.workspace = placement.workspace;

  RETURN_IF_ERROR(stream_->Mark(Milestone::kStart));
  for (size_t i = 0; placement.mirrored && i < input_count; ++i)
    RETURN_IF_ERROR(stream_->CopyToDevice(placement.device_memory[i].data(), staging[i].data(),
                                          staging[i].bytes()));
  RETURN_IF_ERROR(stream_->Mark(Milestone::kInputsReady));
  RETURN_IF_ERROR(job.row->implementation.launch(job.problem, placement.operands, context));
  RETURN_IF_ERROR(stream_->Mark(Milestone::kKernelDone));
  for (size_t i = input_count; placement.mirrored && i < staging.size(); ++i)
    RETURN_IF_ERROR(stream_->CopyToStaging(staging[i].data(), placement.device_memory[i].data(),
                                           staging[i].bytes()));
  RETURN_IF_ERROR(stream_->Mark(Milestone::kOutputsReady));
  RETURN_IF_ERROR(stream_->Synchronize());

  RequestTrace& trace = *job.trace;
  if (job.row->implementation.shape != nullptr) {
    ASSIGN_OR_RETURN(trace.launch, job.row->implementation.shape(job.problem, *context.device));
  }
  trace.h2d_ns = stream_->ElapsedNs(Milestone::kStart, Milestone::kInputsReady);
  trace.kernel_ns = stream_->ElapsedNs(Milestone::kInputsReady, Milestone::kKernelDone);
  trace.d2h_ns = stream_->ElapsedNs(Milestone::kKernelDone, Milestone::kOutputsReady);
  return absl::OkStatus();
}

}  // namespace warpcall
