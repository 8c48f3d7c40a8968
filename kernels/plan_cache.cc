#include "kernels/plan_cache.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"

namespace warpcall {
namespace {

struct Key {
  int row;
  Problem problem;

  bool operator==(const Key& other) const = default;

  template <typename Hash>
  friend Hash AbslHashValue(Hash state, const Key& key) {
    for (const TensorSpec& spec : key.problem.inputs)
      state = Hash::combine(std::move(state), spec.data_type, spec.dims);
    return Hash::combine(std::move(state), key.row, key.problem.attributes);
  }
};

struct Entry {
  absl::Mutex mutex;  // held while the plan is made
  std::optional<PlanCache::Made> made ABSL_GUARDED_BY(mutex);
};

}  // namespace

struct PlanCache::Plans {
  explicit Plans(size_t plans_max) : entries(plans_max) {}

  absl::Mutex mutex;
  LruCache<Key, std::shared_ptr<Entry>> entries ABSL_GUARDED_BY(mutex);
};

PlanCache::PlanCache(size_t plans_max) : plans_(std::make_unique<Plans>(plans_max)) {}

PlanCache::~PlanCache() = default;

PlanCache::Made PlanCache::GetOrMake(const Row& row, const Problem& problem,
                                     absl::FunctionRef<Made()> make) {
  std::shared_ptr<Entry> entry;
  std::optional<std::shared_ptr<Entry>> forgotten;  // destroyed after the lock is given back
  {
    const Key key = {row.id, problem};
    absl::MutexLock lock(&plans_->mutex);
    if (const std::shared_ptr<Entry>* found = plans_->entries.Find(key); found != nullptr) {
      entry = *found;
    } else {
      entry = std::make_shared<Entry>();
      forgotten = plans_->entries.Insert(key, entry);
    }
  }
  absl::MutexLock lock(&entry->mutex);
  if (entry->made.has_value()) return *entry->made;
  Made made = make();
  if (made.ok() || absl::IsUnimplemented(made.status())) entry->made = made;
  return made;
}

void PlanCache::Clear() {
  absl::MutexLock lock(&plans_->mutex);
  plans_->entries.Clear();
}

size_t PlanCache::size() const {
  absl::MutexLock lock(&plans_->mutex);
  return plans_->entries.size();
}

}  // namespace warpcall
