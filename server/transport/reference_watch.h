// When the log says that a kernel's float64 reference serves requests that did not ask for it: at
// once, and once a minute while it goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

namespace warpcall {

// Thread-safe, and never waits.
class ReferenceWatch {
 public:
  static constexpr int64_t kPeriodNs = 60'000'000'000;

  explicit ReferenceWatch(size_t kernels) : counts_(kernels) {}

  // Counts a request of a kernel (Kernel::id). Returns how many there were since the last line
  // where another is due, which the caller writes; otherwise 0.
  int64_t Count(int kernel, int64_t now_ns) {
    Served& served = counts_[static_cast<size_t>(kernel)];
    served.requests.fetch_add(1);
    int64_t due_ns = served.due_ns.load();
    if (now_ns < due_ns || !served.due_ns.compare_exchange_strong(due_ns, now_ns + kPeriodNs))
      return 0;
    return served.requests.exchange(0);
  }

 private:
  struct Served {
    std::atomic<int64_t> requests{0};
    std::atomic<int64_t> due_ns{std::numeric_limits<int64_t>::min()};
  };
  std::vector<Served> counts_;
};

}  // namespace warpcall
