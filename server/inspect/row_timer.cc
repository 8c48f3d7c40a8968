#include "server/inspect/row_timer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/common/saturate.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"
#include "server/inspect/summary.h"

namespace warpcall::inspect {
namespace {

// Trial launches take at least this part of a sample, and at most this part of the time.
constexpr int64_t kTrialShare = 4;
// A recording goes over all sets; if that takes longer, the gaps between launches don't count.
constexpr double kRecordingNsMax = 20e6;
// A recording is kept unless it is slower by more than the two measurements' noise.
constexpr double kRecordingSlower = 1.05;
// Least time for the first launch, whose output is checked.
constexpr int64_t kFirstNsMin = 1'000'000'000;
// Fewer samples have no meaningful noise.
constexpr size_t kSamplesEnough = 3;
// Fewer samples can be close to each other by chance.
constexpr size_t kNoiseSamplesMin = 10;

}  // namespace

RowTimer::RowTimer(PlanPtr row, const Shared& shared, const TimingPlan& plan, void* workspace)
    : row_(std::move(row)),
      shared_(shared),
      plan_(plan),
      sample_ns_(plan.sample_ns > 0         ? plan.sample_ns
                 : shared.stream->records() ? kRecordedSampleNs
                                            : kLaunchedSampleNs),
      limit_(shared.clock),
      samples_planned_(plan.samples),
      next_look_(kNoiseSamplesMin) {
  context_.stream = shared.stream->native_handle();
  context_.workspace = workspace;
  context_.stop = &limit_;
}

RowTimer::~RowTimer() { Forget(); }

void RowTimer::Forget() {
  if (recording_ >= 0) shared_.stream->Forget(recording_);
  recording_ = -1;
}

absl::Status RowTimer::LaunchOn(const Operands& set) const { return row_->Enqueue(set, context_); }

void RowTimer::Limit(int64_t ns) {
  limit_.Set(std::min(plan_.deadline_ns, SaturatingAdd(shared_.clock(), ns)));
}

absl::Status RowTimer::CheckNotStopped() const {
  if (!limit_.IsSet()) return absl::OkStatus();
  return absl::DeadlineExceededError("a launch was stopped for lack of time");
}

absl::Status RowTimer::First() {
  const int64_t start_ns = shared_.clock();
  Limit(std::max(plan_.ns_max, kFirstNsMin));
  const absl::Status status = RunPhase(shared_.stream, Milestone::kKernelDone,
                                       [&] { return LaunchOn((*shared_.sets)[0]); });
  spent_ns_ += shared_.clock() - start_ns;
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckNotStopped());
  launch_ns_ = static_cast<double>(shared_.stream->Times().kernel_ns);
  if (spent_ns_ >= plan_.ns_max / 2) samples_ns_.push_back(launch_ns_);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RowTimer::Launch(int64_t count) {
  const int64_t start_ns = shared_.clock();
  Limit(kNoDeadline);
  const auto enqueue = [&] {
    absl::Status status;
    for (int64_t i = 0; i < count && status.ok(); ++i) status = LaunchOn(shared_.sets->Next());
    return status;
  };
  RETURN_IF_ERROR(RunPhase(shared_.stream, Milestone::kKernelDone, enqueue));
  spent_ns_ += shared_.clock() - start_ns;
  RETURN_IF_ERROR(CheckNotStopped());
  return shared_.stream->Times().kernel_ns;
}

absl::StatusOr<int64_t> RowTimer::Replay() {
  const int64_t start_ns = shared_.clock();
  RETURN_IF_ERROR(shared_.stream->Replay(recording_));
  RETURN_IF_ERROR(shared_.stream->Synchronize());
  spent_ns_ += shared_.clock() - start_ns;
  return shared_.stream->Times().kernel_ns;
}

absl::Status RowTimer::WarmUp() {
  const int64_t ns_max = std::min(plan_.ns_max, plan_.ns_enough) / kTrialShare;
  if (spent_ns_ >= ns_max && launch_ns_ >= static_cast<double>(sample_ns_)) return absl::OkStatus();
  int64_t launched = 1;
  for (int64_t count = 1;; count = std::min(2 * count, plan_.launches_max)) {
    int64_t batch_ns;
    ASSIGN_OR_RETURN(batch_ns, Launch(count));
    // The best batch, since a delay of one would put the row into a wrong place.
    launch_ns_ = std::min(launch_ns_, static_cast<double>(batch_ns) / static_cast<double>(count));
    launched += count;
    const bool known = batch_ns >= sample_ns_ / kTrialShare || count == plan_.launches_max;
    if ((known && launched >= plan_.warmup_launches) || spent_ns_ >= ns_max) break;
  }
  const double wanted = std::ceil(static_cast<double>(sample_ns_) / std::max(launch_ns_, 1.0));
  launches_ =
      static_cast<int64_t>(std::clamp(wanted, 1.0, static_cast<double>(plan_.launches_max)));
  return shared_.stream->records() ? TryRecording(launch_ns_) : absl::OkStatus();
}

// A recording is not always faster: one of copies reached 2766 GB/s on an H200, and the same copies
// enqueued one by one 4298.
absl::Status RowTimer::TryRecording(double launch_ns) {
  const int64_t launches = launches_;
  const int64_t sets = shared_.sets->size();
  for (int attempt = 0; attempt < 2; ++attempt) {
    launches_ = CeilDivide(launches_, sets) * sets;
    if (static_cast<double>(launches_) * launch_ns > kRecordingNsMax || !Record().ok()) break;
    RETURN_IF_ERROR(Replay().status());  // the first uploads it
    int64_t replay_ns;
    ASSIGN_OR_RETURN(replay_ns, Replay());
    const double replayed_ns =
        std::max(1.0, static_cast<double>(replay_ns)) / static_cast<double>(launches_);
    if (replayed_ns > kRecordingSlower * launch_ns) break;
    if (replay_ns >= sample_ns_ || launches_ >= plan_.launches_max) return absl::OkStatus();
    // Without the gaps, launches are shorter than estimated.
    if (attempt > 0) return absl::OkStatus();
    const double wanted = std::ceil(static_cast<double>(sample_ns_) / replayed_ns);
    launches_ = static_cast<int64_t>(std::min(wanted, static_cast<double>(plan_.launches_max)));
  }
  Forget();
  launches_ = launches;
  return absl::OkStatus();
}

// Records a sample's launches. A row that refuses to be recorded is launched for every sample.
absl::Status RowTimer::Record() {
  Forget();
  const auto launch = [&]() -> absl::Status {
    for (int64_t i = 0; i < launches_; ++i)
      RETURN_IF_ERROR(LaunchOn((*shared_.sets)[i % shared_.sets->size()]));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(recording_, shared_.stream->Record(launch, {}));
  return absl::OkStatus();
}

bool RowTimer::done() const {
  const size_t samples = samples_ns_.size();
  return static_cast<int64_t>(samples) >= samples_planned_ ||
         (samples > 0 && spent_ns_ >= plan_.ns_max) ||
         (samples >= kSamplesEnough && spent_ns_ >= plan_.ns_enough) || noise_ <= plan_.max_noise;
}

void RowTimer::PlanSamples(int64_t samples) {
  samples_planned_ = samples;
  noise_ = std::numeric_limits<double>::infinity();
  next_look_ = std::max(kNoiseSamplesMin, samples_ns_.size() + kSamplesEnough);
}

absl::Status RowTimer::Sample() {
  int64_t sample_ns;
  sets_used_ = {recording_ >= 0 ? 0 : shared_.sets->next(),
                std::min(launches_, shared_.sets->size())};
  ASSIGN_OR_RETURN(sample_ns, recording_ >= 0 ? Replay() : Launch(launches_));
  samples_ns_.push_back(static_cast<double>(sample_ns) / static_cast<double>(launches_));
  // Not after each sample, as that sorts all samples.
  if (plan_.max_noise > 0 && samples_ns_.size() >= next_look_) {
    noise_ = Summarize(samples_ns_).noise;
    next_look_ += std::max<size_t>(1, next_look_ / 8);
  }
  return absl::OkStatus();
}

bool RowTimer::Retake() {
  if (samples_ns_.empty() || retaken_ >= plan_.samples ||
      spent_ns_ >= std::min(plan_.ns_max, plan_.ns_enough))
    return false;
  ++retaken_;
  Drop();
  return true;
}

void RowTimer::Drop() {
  WARPCALL_DCHECK(!samples_ns_.empty());
  samples_ns_.pop_back();
  noise_ = std::numeric_limits<double>::infinity();  // included that sample
}

}  // namespace warpcall::inspect
