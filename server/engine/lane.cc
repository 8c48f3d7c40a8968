#include "server/engine/lane.h"

#include <cstring>
#include <vector>

#include "kernels/common/status_macros.h"

namespace warpcall {
namespace {

// A lane waits this long for staging that other jobs hold; a client that reads its responses slower
// than that must not stall the device for everyone.
constexpr int64_t kStagingWaitNs = 2'000'000'000;

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

Lane::Lane(const LaneShared& shared, std::unique_ptr<Executor> executor)
    : shared_(shared), executor_(std::move(executor)), thread_([this] { Loop(); }) {}

Lane::~Lane() { thread_.join(); }

void Lane::Loop() {
  // A thread that could not be bound fails in every call that follows, which says so to the client.
  executor_->BindThread().IgnoreError();
  while (std::unique_ptr<Job> job = shared_.scheduler->Next()) {
    const int64_t start_ns = shared_.clock();
    job->trace->queue_ns = start_ns - job->submitted_ns;
    StagingBuffers outputs;
    shared_.busy->Enter();
    absl::Status status = Run(*job, &outputs);
    shared_.busy->Leave();
    if (!status.ok() && !shared_.device->healthy()) {
      job->trace->reject_reason = RejectReason::kDeviceLost;
      shared_.on_lost();
    }
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
  absl::InlinedVector<StagingRange, 3> ranges;
  for (const StagingBuffer& buffer : staging) ranges.push_back({buffer.data(), buffer.bytes()});
  RETURN_IF_ERROR(executor_->Run(job, ranges));
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

}  // namespace warpcall
