#include "server/engine/lane.h"

#include <algorithm>

#include "kernels/graph/graph_plan.h"
#include "kernels/graph/step_graph.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/engine/host_copy.h"
#include "server/engine/phases.h"
#include "server/engine/prediction.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

// Copying this much takes some 20 us, as long as waking a helper.
constexpr int64_t kCopyGrainBytes = 256 << 10;

// Copies one input, on several threads when it is large.
void CopyPieces(const InputPieces& pieces, const StagingBuffer& staging, cpu::ThreadPool* copiers,
                CopyCounter* counter) {
  absl::InlinedVector<size_t, 8> begins = {0};  // each piece's start in the input, then the end
  for (const absl::Span<const char>& piece : pieces) begins.push_back(begins.back() + piece.size());
  WARPCALL_CHECK(begins.back() <= staging.bytes(), begins.back(), staging.bytes());
  char* const to = staging.data();
  const auto copy = [&](int64_t first, int64_t last) {
    auto at = static_cast<size_t>(first);
    const auto end = static_cast<size_t>(last);
    auto piece = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), at) -
                                     begins.begin() - 1);
    for (; at < end; ++piece) {
      const size_t bytes = std::min(begins[piece + 1], end) - at;
      CopyOnHost(to + at, pieces[piece].subspan(at - begins[piece], bytes), counter);
      at += bytes;
    }
  };
  copiers->ParallelFor(static_cast<int64_t>(begins.back()), kCopyGrainBytes, copy);
}

}  // namespace

void BusyMeter::Enter() {
  absl::MutexLock lock(&mutex_);
  if (running_++ == 0) since_ns_ = clock_();
}

void BusyMeter::Leave() {
  absl::MutexLock lock(&mutex_);
  WARPCALL_DCHECK(running_ > 0, running_);
  if (--running_ == 0) busy_ns_ += clock_() - since_ns_;
}

int64_t BusyMeter::busy_ns() const {
  absl::MutexLock lock(&mutex_);
  return busy_ns_ + (running_ > 0 ? clock_() - since_ns_ : 0);
}

Lane::Lane(const LaneShared& shared, std::unique_ptr<Executor> executor)
    : shared_(shared), executor_(std::move(executor)) {}

void Lane::BindThread() {
  // A thread that could not be bound fails in every later call, which reports it to the client.
  executor_->BindThread().IgnoreError();
}

LaneThread::LaneThread(Scheduler* scheduler, Lane* lane, LaneKind kind)
    : thread_([scheduler, lane, kind] {
        lane->BindThread();
        while (std::unique_ptr<Job> job = scheduler->Next(kind)) lane->Process(std::move(job));
      }) {}

void Lane::Process(std::unique_ptr<Job> job) {
  absl::Status status;
  {
    const Phase phase("job", job->key.id);
    status = Begin(std::move(job));
    if (status.ok()) status = Run();
  }
  End(std::move(status));
}

absl::Status Lane::Begin(std::unique_ptr<Job> job) {
  WARPCALL_DCHECK(job_ == nullptr && job != nullptr && job->row != nullptr);
  WARPCALL_DCHECK(job->staging.size() == job->problem.inputs.size() + job->problem.outputs.size(),
                  job->key.id, job->staging.size());
  job_ = std::move(job);
  is_prepared_ = false;
  start_ns_ = shared_.limits->clock();
  job_->trace->queue_began_ns = job_->submitted_ns;
  job_->trace->queue_ns = start_ns_ - job_->submitted_ns;
  shared_.busy->Enter();
  RETURN_IF_ERROR(CheckStillWanted(*job_, start_ns_));
  CopyIn(*job_);
  return CheckStillWanted(*job_, shared_.limits->clock());
}

absl::Status Lane::Run() {
  WARPCALL_CHECK(job_ != nullptr);
  Job& job = *job_;
  absl::InlinedVector<StagingRange, 3> ranges;
  for (const StagingBuffer& buffer : job.staging) ranges.push_back({buffer.data(), buffer.bytes()});
  const RunWatch watch(job, *shared_.limits, start_ns_);
  const Row* const chosen = job.row;
  const bool was_prepared = job.is_prepared();
  job.watch = &watch;
  absl::Status status = RunSomeRow(job, ranges);
  job.watch = nullptr;
  // A refusal completes a preparation, too.
  is_prepared_ = status.ok() || absl::IsUnimplemented(status);
  job.trace->device_done_ns = shared_.limits->clock();
  const int64_t taken_ns = job.trace->device_done_ns - start_ns_;
  if (absl::Status stopped = watch.Check(); !stopped.ok()) {
    // A job stopped while its plan was made shows nothing about its run time.
    if (was_prepared && job.row == chosen)
      shared_.history->RecordAtLeast(job.row->id, job.timed_work(), taken_ns);
    return stopped;
  }
  RETURN_IF_ERROR(status);
  // Excludes the preparation, which the next job of its kind finds done. If it counted, every
  // request would be predicted a search of 100 ms, and jobs would go to another device.
  RecordRun(job, shared_.history);
  job.trace->ran = true;
  return absl::OkStatus();
}

absl::Status Lane::RunSomeRow(Job& job, absl::Span<const StagingRange> staging) {
  while (true) {
    absl::Status status = executor_->Run(job, staging);
    if (!IsPlanRefusal(status)) return status;
    RecordRefusal(job, status);
    const absl::StatusOr<Candidate> next =
        job.chooser.NextAfter(*job.row, status, absl::MakeConstSpan(&job.problem, 1));
    if (!next.ok()) {
      // Record no implementation, as for the next such request, which finds the refusals known.
      if (next.status() != status) job.trace->row = -1;
      return next.status();
    }
    job.row = next->row;
    if (next->graph != nullptr) job.problem.graph = next->graph;
    next->WriteTo(job.trace);
    RETURN_IF_ERROR(CheckRunTime(Predict(*shared_.history, job), shared_.limits->run_ns_max));
  }
}

void Lane::RecordRefusal(const Job& job, const absl::Status& refusal) {
  const Op* op = job.op;
  const Row* row = job.row;
  const Problem* problem = &job.problem;
  if (job.problem.graph != nullptr) {
    const std::optional<int> number = StepOf(refusal);
    if (!number.has_value()) return;
    const Step& step = job.problem.graph->steps()[static_cast<size_t>(*number)];
    op = step.op;
    row = step.row;
    problem = &step.problem;
  }
  if (!shared_.refusals->Add(*row, *problem, refusal)) return;
  Log(LogLevel::kWarning, "an implementation refuses what it was chosen for: its first time",
      {{"kernel", op == nullptr ? "" : op->name},
       {"implementation", FamilyName(row->implementation.family)},
       {"variant", row->implementation.name},
       {"device", shared_.device->properties().name},
       {"error", refusal.message()}});
}

void Lane::End(absl::Status status) {
  WARPCALL_CHECK(job_ != nullptr);
  Job& job = *job_;
  shared_.busy->Leave();
  if (!status.ok() && !shared_.device->healthy()) {
    // A job that had to end has its reason already: its worker was stopped for it.
    if (RejectReasonOf(status) == RejectReason::kNone)
      status = RefuseFor(RejectReason::kDeviceLost, std::move(status));
    shared_.on_lost();
  }
  StagingBuffers outputs;
  for (size_t i = job.inputs.size(); status.ok() && i < job.staging.size(); ++i)
    outputs.push_back(std::move(job.staging[i]));
  job.staging.clear();
  const uint64_t id = job.key.id;
  EndJob(std::move(job_), std::move(status), std::move(outputs));
  if (shared_.scheduler != nullptr) shared_.scheduler->Finished(id, is_prepared_);
}

void Lane::CopyIn(Job& job) {
  const Phase phase("copy_in", job.key.id);
  const int64_t start_ns = shared_.limits->clock();
  CopyCounter copied;
  WARPCALL_CHECK(job.inputs.size() <= job.staging.size(), job.inputs.size(), job.staging.size());
  for (size_t i = 0; i < job.inputs.size(); ++i)
    CopyPieces(job.inputs[i], job.staging[i], shared_.copiers, &copied);
  job.trace->copy_in_bytes += copied.bytes();
  job.release_inputs();
  job.trace->copy_in_ns = shared_.limits->clock() - start_ns;
}

}  // namespace warpcall
