#include "server/engine/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/human_figures.h"

namespace warpcall {
namespace {

// gRPC sends a timeout of a second or more rounded up, by 1 % at most, and the call's header may
// wait longer than its cancellation: of 2500 clients with 0.5 to 5 s, all but three left at most 28
// ms early, on two busy cores.
constexpr int64_t kClocksApartNs = 10'000'000;
constexpr int64_t kShareOfTimeout = 20;

}  // namespace

TimedWork Job::timed_work() const {
  WARPCALL_CHECK(trace != nullptr, key.id);
  TimedWork timed{trace->work, !residents.empty()};
  for (size_t i = 0; i < residents.size(); ++i) {
    if (!IsResident(i)) continue;
    const size_t inputs_count = problem.inputs.size();
    const TensorSpec& spec =
        i < inputs_count ? problem.inputs[i] : problem.outputs[i - inputs_count];
    timed.work.bytes -= static_cast<int64_t>(spec.bytes());
  }
  timed.work.bytes = std::max<int64_t>(timed.work.bytes, 0);
  return timed;
}

void EndJob(std::unique_ptr<Job> job, absl::Status status, StagingBuffers outputs) {
  WARPCALL_CHECK(job != nullptr && job->done != nullptr);
  WARPCALL_DCHECK(!status.ok() || outputs.size() == job->problem.outputs.size(), job->key.id,
                  outputs.size());
  job->residents.clear();  // whoever learns of the end finds their room
  job->done(std::move(status), std::move(outputs));
  job->load = DeviceLoad();
  if (job->ended != nullptr) job->ended();
}

absl::Status CheckStillWanted(const Job& job, int64_t now_ns) {
  WARPCALL_CHECK(job.trace != nullptr && job.cancelled != nullptr, job.key.id);
  if (now_ns >= job.key.deadline_ns)
    return RefuseFor(RejectReason::kDeadline,
                     absl::DeadlineExceededError(absl::StrCat(
                         "the deadline passed ", HumanTime(now_ns - job.key.deadline_ns),
                         " ago, before the work began")));
  if (job.cancelled->load(std::memory_order_relaxed))
    return absl::CancelledError("the client went away before the work began");
  return absl::OkStatus();
}

bool LeftAtDeadline(int64_t begin_ns, int64_t deadline_ns, int64_t now_ns) {
  if (deadline_ns == kNoDeadline) return false;
  return now_ns >= deadline_ns - kClocksApartNs - (deadline_ns - begin_ns) / kShareOfTimeout;
}

}  // namespace warpcall
