// --deadline of a command that asks the server several times.
#pragma once

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall::cli {

// What is left of it, of which only what the server takes is taken off: not the command's own work,
// such as making inputs. For one thread.
class Patience {
 public:
  explicit Patience(absl::Duration whole) : left_(whole) {}

  // Of the next call, which ends at once when nothing is left; never zero, which calls take for no
  // limit.
  absl::Duration left() const { return std::max(left_, absl::Nanoseconds(1)); }

  // What `ask` returns, which is called with left() and keeps to it.
  template <typename Ask>
  auto Spend(Ask&& ask) {
    const absl::Time start = absl::Now();
    auto answer = std::forward<Ask>(ask)(left());
    left_ -= absl::Now() - start;
    return answer;
  }

 private:
  absl::Duration left_;
};

}  // namespace warpcall::cli
