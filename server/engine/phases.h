// Reports the phases of a request's work on a thread to a watcher: NVTX's tools, or Profile's
// trace. Costs a load and a branch while there is no watcher.
#pragma once

#include <atomic>
#include <cstdint>

namespace warpcall {

// Called on the thread that works; ranges of one thread nest. `name` is a literal; `request` is
// JobKey::id, or 0.
struct PhaseWatcher {
  void (*begin)(const char* name, uint64_t request);
  void (*end)();
};

inline std::atomic<const PhaseWatcher*> phase_watcher{nullptr};

// A phase lasts from its construction to the end of its scope.
class Phase {
 public:
  Phase(const char* name, uint64_t request)
      : watcher_(phase_watcher.load(std::memory_order_acquire)) {
    if (watcher_ != nullptr) watcher_->begin(name, request);
  }
  ~Phase() {
    if (watcher_ != nullptr) watcher_->end();
  }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const PhaseWatcher* const watcher_;
};

}  // namespace warpcall
