#include "kernels/cuda/plan_cache.h"

#include <optional>

namespace warpcall::cuda {

size_t PlanCache::size() const {
  absl::MutexLock lock(&mutex_);
  return plans_.size();
}

bool PlanCache::Lookup(const PlanKey& key, Made<void>* made) {
  absl::MutexLock lock(&mutex_);
  const Made<void>* const found = plans_.Find(key);
  if (found == nullptr) return false;
  *made = *found;
  return true;
}

PlanCache::Made<void> PlanCache::GetOrMakeAny(const PlanKey& key,
                                              absl::FunctionRef<Made<void>()> make) {
  Made<void> made = nullptr;
  if (Lookup(key, &made)) return made;
  absl::MutexLock making_lock(&making_);
  if (Lookup(key, &made)) return made;
  made = make();
  if (!made.ok() && !absl::IsUnimplemented(made.status())) return made;
  std::optional<Made<void>> gone;  // destroyed after the lock is: a plan's end may take long
  absl::MutexLock lock(&mutex_);
  gone = plans_.Insert(key, made);
  return made;
}

}  // namespace warpcall::cuda
