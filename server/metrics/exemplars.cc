#include "server/metrics/exemplars.h"

namespace warpcall {

void Exemplars::Keep(uint32_t bucket, const Exemplar& exemplar) {
  if (!mutex_.TryLock()) return;
  by_bucket_[bucket] = exemplar;
  mutex_.Unlock();
}

Exemplars::Map Exemplars::All() const {
  absl::MutexLock lock(&mutex_);
  return by_bucket_;
}

}  // namespace warpcall
