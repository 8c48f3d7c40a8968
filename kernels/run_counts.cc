#include "kernels/run_counts.h"

#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"

namespace warpcall {

int RunCounts::Add(const Plan& plan, const absl::InlinedVector<const void*, 2>& residents) {
  absl::MutexLock lock(&mutex_);
  auto entry = absl::c_find_if(entries_, [&](const Entry& known) {
    return known.plan == &plan && known.residents == residents;
  });
  if (entry == entries_.end()) {
    const Entry added = {&plan, residents, 0, 0};
    if (entries_.size() < kPlansMax) {
      entry = entries_.insert(entry, added);
    } else {
      entry = absl::c_min_element(
          entries_, [](const Entry& a, const Entry& b) { return a.last_used < b.last_used; });
      *entry = added;
    }
  }
  entry->last_used = ++now_;
  if (entry->runs < std::numeric_limits<int>::max()) ++entry->runs;
  return entry->runs;
}

}  // namespace warpcall
