// A map of bounded size that drops the least recently used entry.
#pragma once

#include <cstddef>
#include <list>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/common/check.h"

namespace warpcall {

// Key is hashable by absl::Hash; Value is cheap to copy. Not thread-safe.
template <typename Key, typename Value>
class LruCache {
 public:
  // REQUIRES: entries_max > 0.
  explicit LruCache(size_t entries_max) : entries_max_(entries_max) {
    WARPCALL_DCHECK(entries_max > 0);
  }

  // Null when `key` is unknown; otherwise it counts as used just now. Valid until the next Insert.
  const Value* Find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->second;
  }

  // Returns the value that made room or was replaced, if any, so that the caller chooses where it
  // is destroyed.
  std::optional<Value> Insert(const Key& key, Value value) {
    std::optional<Value> gone;
    if (const auto found = index_.find(key); found != index_.end()) {
      gone = std::move(found->second->second);
      entries_.erase(found->second);
      index_.erase(found);
    } else if (entries_.size() == entries_max_) {
      gone = std::move(entries_.back().second);
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(value));
    index_.emplace(key, entries_.begin());
    WARPCALL_DCHECK(index_.size() == entries_.size(), index_.size(), entries_.size());
    WARPCALL_DCHECK(entries_.size() <= entries_max_, entries_.size(), entries_max_);
    return gone;
  }

  // Nothing happens when `key` is unknown.
  void Erase(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return;
    entries_.erase(found->second);
    index_.erase(found);
  }

  void Clear() {
    index_.clear();
    entries_.clear();
  }

  size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<Key, Value>>;  // latest first

  const size_t entries_max_;
  Entries entries_;
  absl::flat_hash_map<Key, typename Entries::iterator> index_;
};

}  // namespace warpcall
