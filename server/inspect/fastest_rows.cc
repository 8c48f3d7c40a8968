#include "server/inspect/fastest_rows.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "server/inspect/summary.h"
#include "server/runtime/plan_site.h"

namespace warpcall::inspect {
namespace {

// A first launch on a CPU's memory is warm enough.
constexpr TimingPlan kTiming = {.warmup_launches = 1, .samples = 1, .ns_max = 50'000'000};
// Longer than any repetition that memory controllers or caches could detect.
constexpr int64_t kPeriodElements = int64_t{1} << 20;
// Rows this much slower than the fastest are not measured again.
constexpr double kSlower = 1.25;

bool IsSerious(const Row& row, const DeviceProperties& device) {
  const Family family = row.implementation.family;
  return row.implementation.device_kind == device.kind && family != Family::kManual &&
         family != Family::kReference;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FastestRows>> FastestRows::Create(const Site& site,
                                                                 const Asked& asked, int64_t sets) {
  const Kernel* found;
  ASSIGN_OR_RETURN(found, site.registry->Find(asked.kernel));
  Problem problem;
  ASSIGN_OR_RETURN(problem, MakeProblem(*found->op, asked.inputs, asked.attributes));
  std::unique_ptr<FastestRows> rows(new FastestRows(std::move(problem)));
  ASSIGN_OR_RETURN(
      rows->sets_,
      OperandSets::Create({.problem = &rows->problem_, .sets = sets, .period = kPeriodElements},
                          *site.device, site.stream, site.pool));
  RETURN_IF_ERROR(rows->AddRows(site, *found));
  return rows;
}

absl::Status FastestRows::AddRows(const Site& site, const Kernel& kernel) {
  absl::Status status = absl::NotFoundError(
      absl::StrCat(kernel.op->name, " has no fast implementation for ", site.device->name));
  for (const int id : kernel.rows) {
    const Row& row = site.registry->rows()[static_cast<size_t>(id)];
    const char* const name = row.implementation.name;
    if (!IsSerious(row, *site.device) ||
        !site.registry->Select(kernel, name, problem_, *site.device).ok())
      continue;
    absl::StatusOr<Runner> runner = Ready(site, row.implementation);
    if (runner.ok())
      runners_.push_back(*std::move(runner));
    else
      status = runner.status();
  }
  if (runners_.empty()) return status;
  const auto fastest = std::min_element(
      runners_.begin(), runners_.end(),
      [](const Runner& a, const Runner& b) { return a.timer->launch_ns() < b.timer->launch_ns(); });
  const double kept_ns = kSlower * fastest->timer->launch_ns();
  std::erase_if(runners_,
                [&](const Runner& runner) { return runner.timer->launch_ns() > kept_ns; });
  return absl::OkStatus();
}

absl::StatusOr<FastestRows::Runner> FastestRows::Ready(const Site& site,
                                                       const Implementation& row) {
  Runner runner;
  const auto allocate = [&](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(runner.workspace, site.stream->AllocateMemory(bytes));
    return runner.workspace.data();
  };
  ASSIGN_OR_RETURN(runner.plan,
                   MakePlanOn({site.stream, site.device, &(*sets_)[0], allocate}, row, problem_));
  RETURN_IF_ERROR(allocate(runner.plan->traits().workspace_bytes).status());
  runner.timer =
      std::make_unique<RowTimer>(runner.plan, RowTimer::Shared{site.stream, &*sets_, site.clock},
                                 kTiming, runner.workspace.data());
  RETURN_IF_ERROR(runner.timer->First());
  RETURN_IF_ERROR(runner.timer->WarmUp());
  return runner;
}

absl::Status FastestRows::Sample() {
  return runners_[static_cast<size_t>(samples_++) % runners_.size()].timer->Sample();
}

double FastestRows::launch_ns() const {
  double best = 0;
  for (const Runner& runner : runners_) {
    const double ns = Summarize(runner.timer->samples_ns()).p10;
    if (ns > 0 && (best == 0 || ns < best)) best = ns;
  }
  return best;
}

int64_t FastestRows::spent_ns() const {
  int64_t sum = 0;
  for (const Runner& runner : runners_) sum += runner.timer->spent_ns();
  return sum;
}

}  // namespace warpcall::inspect
