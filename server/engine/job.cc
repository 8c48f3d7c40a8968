#include "server/engine/job.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {

void EndJob(std::unique_ptr<Job> job, absl::Status status, StagingBuffers outputs) {
  job->done(std::move(status), std::move(outputs));
  job->load = DeviceLoad();
  if (job->ended != nullptr) job->ended();
}

absl::Status CheckStillWanted(const Job& job, int64_t now_ns) {
  if (now_ns >= job.key.deadline_ns) {
    job.trace->reject_reason = RejectReason::kDeadline;
    return absl::DeadlineExceededError(absl::StrCat(
        "the deadline passed ", now_ns - job.key.deadline_ns, " ns ago, before the work began"));
  }
  if (job.cancelled->load(std::memory_order_relaxed))
    return absl::CancelledError("the client went away before the work began");
  return absl::OkStatus();
}

}  // namespace warpcall
