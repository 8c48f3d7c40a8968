#include "server/transport/recent_graphs.h"

#include <utility>

namespace warpcall {

std::shared_ptr<const GraphHeader> RecentGraphs::Find(const std::string& header) {
  if (header.size() > kHeaderBytesMax) return nullptr;
  const absl::MutexLock lock(&mutex_);
  const std::shared_ptr<const GraphHeader>* const found = known_.Find(header);
  return found == nullptr ? nullptr : *found;
}

void RecentGraphs::Keep(const std::string& header, std::shared_ptr<const GraphHeader> read) {
  if (header.size() > kHeaderBytesMax) return;
  // Destroyed when the lock is free again.
  std::optional<std::shared_ptr<const GraphHeader>> gone;
  const absl::MutexLock lock(&mutex_);
  gone = known_.Insert(header, std::move(read));
}

}  // namespace warpcall
