// What rows learned about the problems that they were prepared for: descriptors, chosen algorithms,
// compiled plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "kernels/op.h"

namespace warpcall::cuda {

// All that the making of a plan depends on. A row uses one type of plan only.
struct PlanKey {
  absl::string_view row;  // a constant of the program
  absl::InlinedVector<int64_t, 24> numbers;

  bool operator==(const PlanKey& other) const = default;

  template <typename Hash>
  friend Hash AbslHashValue(Hash state, const PlanKey& key) {
    return Hash::combine(std::move(state), key.row, key.numbers);
  }
};

// Thread-safe. Plans are shared: one that is forgotten lives on until its last user is done.
class PlanCache {
 public:
  // REQUIRES: plans_max > 0.
  explicit PlanCache(size_t plans_max) : plans_(plans_max) {}

  template <typename Plan>
  using Made = absl::StatusOr<std::shared_ptr<const Plan>>;

  // The plan, or the refusal, that is known; otherwise what `make` returns, which is remembered if
  // it is a plan or UNIMPLEMENTED (other errors may pass). One `make` runs at a time, so that
  // neither measures the other's work, and who waits for another thread's plan finds it.
  template <typename Plan>
  Made<Plan> GetOrMake(const PlanKey& key, absl::FunctionRef<Made<Plan>()> make) {
    return As<Plan>(GetOrMakeAny(key, [&]() -> Made<void> { return make(); }));
  }

  size_t size() const;

 private:
  template <typename Plan>
  static Made<Plan> As(Made<void> made) {
    if (!made.ok()) return std::move(made).status();
    return std::static_pointer_cast<const Plan>(*std::move(made));
  }

  Made<void> GetOrMakeAny(const PlanKey& key, absl::FunctionRef<Made<void>()> make)
      ABSL_LOCKS_EXCLUDED(making_, mutex_);
  bool Lookup(const PlanKey& key, Made<void>* made) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex making_ ABSL_ACQUIRED_BEFORE(mutex_);  // held while a plan is made
  mutable absl::Mutex mutex_;
  LruCache<PlanKey, Made<void>> plans_ ABSL_GUARDED_BY(mutex_);
};

// For a row's `prepare`: leaves the plan for `launch`.
template <typename Plan>
absl::Status KeepForLaunch(PlanCache::Made<Plan> made, LaunchContext* context) {
  if (!made.ok()) return std::move(made).status();
  context->plan = *std::move(made);
  return absl::OkStatus();
}

// For its `launch`: what `prepare` left; INTERNAL when it was not called.
template <typename Plan>
absl::StatusOr<const Plan*> PreparedPlan(const LaunchContext& context, absl::string_view row) {
  if (context.plan != nullptr) return static_cast<const Plan*>(context.plan.get());
  return absl::InternalError(absl::StrCat(row, " was launched without being prepared"));
}

}  // namespace warpcall::cuda
