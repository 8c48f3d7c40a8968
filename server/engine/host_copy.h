// The one place where the host copies tensor bytes, so that the counters are exact. tests/tidy lets
// nothing else in server/engine, server/transport and server/worker copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"
#include "proto/common/check.h"

namespace warpcall {

// Thread-safe.
class CopyCounter {
 public:
  void Add(size_t bytes) {
    bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> bytes_{0};
};

// Copies `from`, which does not overlap `to`, and adds its size to `counter`.
inline void CopyOnHost(char* to, absl::Span<const char> from, CopyCounter* counter) {
  if (from.empty()) return;
  WARPCALL_DCHECK(to != nullptr, from.size());
  std::memcpy(to, from.data(), from.size());
  counter->Add(from.size());
}

}  // namespace warpcall
