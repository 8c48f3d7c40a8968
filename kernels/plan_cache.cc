#include "kernels/plan_cache.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/common/lru_cache.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

struct Key {
  int row;
  Problem problem;

  bool operator==(const Key& other) const = default;

  template <typename Hash>
  friend Hash AbslHashValue(Hash state, const Key& key) {
    return Hash::combine(std::move(state), key.row, key.problem);
  }
};

struct Entry {
  absl::Mutex mutex;  // held while the plan is made
  std::optional<PlanCache::Made> made ABSL_GUARDED_BY(mutex);
};

}  // namespace

struct PlanCache::Plans {
  using Entries = LruCache<Key, std::shared_ptr<Entry>>;

  Plans(size_t plans_max, size_t compiled_plans_max)
      : entries(plans_max), compiled(compiled_plans_max) {}

  std::shared_ptr<Entry> FindOrAdd(const Key& key);
  void MoveToCompiled(const Key& key, const std::shared_ptr<Entry>& entry);

  absl::Mutex mutex;
  Entries entries ABSL_GUARDED_BY(mutex);
  Entries compiled ABSL_GUARDED_BY(mutex);
};

std::shared_ptr<Entry> PlanCache::Plans::FindOrAdd(const Key& key) {
  std::optional<std::shared_ptr<Entry>> forgotten;  // destroyed after the lock is given back
  absl::MutexLock lock(&mutex);
  for (Entries* known : {&entries, &compiled})
    if (const std::shared_ptr<Entry>* found = known->Find(key); found != nullptr) return *found;
  auto entry = std::make_shared<Entry>();
  forgotten = entries.Insert(key, entry);
  return entry;
}

void PlanCache::Plans::MoveToCompiled(const Key& key, const std::shared_ptr<Entry>& entry) {
  std::optional<std::shared_ptr<Entry>> forgotten;
  absl::MutexLock lock(&mutex);
  entries.Erase(key);
  forgotten = compiled.Insert(key, entry);
}

PlanCache::PlanCache(size_t plans_max, size_t compiled_plans_max)
    : plans_(std::make_unique<Plans>(plans_max, compiled_plans_max)) {}

PlanCache::~PlanCache() = default;

PlanCache::Made PlanCache::GetOrMake(const Row& row, const Problem& problem,
                                     absl::FunctionRef<Made()> make) {
  WARPCALL_DCHECK(row.id >= 0, row.id);
  const Key key = {row.id, problem};
  const std::shared_ptr<Entry> entry = plans_->FindOrAdd(key);
  absl::MutexLock lock(&entry->mutex);
  if (entry->made.has_value()) return *entry->made;
  Made made = make();
  WARPCALL_DCHECK(!made.ok() || *made != nullptr, row.implementation.name);
  if (made.ok() || absl::IsUnimplemented(made.status())) entry->made = made;
  if (made.ok() && (*made)->traits().is_compiled) plans_->MoveToCompiled(key, entry);
  return made;
}

void PlanCache::Clear() {
  absl::MutexLock lock(&plans_->mutex);
  plans_->entries.Clear();
  plans_->compiled.Clear();
}

size_t PlanCache::size() const {
  absl::MutexLock lock(&plans_->mutex);
  return plans_->entries.size() + plans_->compiled.size();
}

}  // namespace warpcall
