#include "server/engine/plan_refusals.h"

#include "kernels/compiled/program.h"
#include "proto/common/check.h"

namespace warpcall {

bool IsPlanRefusal(const absl::Status& status) {
  return absl::IsUnimplemented(status) || compiled::IsCompileError(status);
}

bool PlanRefusals::Add(const Row& row, const Problem& problem, const absl::Status& why) {
  WARPCALL_DCHECK(!why.ok(), row.implementation.name);
  absl::MutexLock lock(&mutex_);
  any_.store(true, std::memory_order_release);
  known_.Insert({row.id, problem}, why);
  return rows_.insert(row.id).second;
}

absl::Status PlanRefusals::Check(const Row& row, const Problem& problem) const {
  if (!any_.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (!rows_.contains(row.id)) return absl::OkStatus();
  const absl::Status* const why = known_.Find({row.id, problem});
  return why == nullptr ? absl::OkStatus() : *why;
}

}  // namespace warpcall
