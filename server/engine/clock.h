// Time as the engine sees it: nanoseconds on one monotonic axis, injected so that tests own it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

namespace warpcall {

using Clock = std::function<int64_t()>;

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

// CLOCK_MONOTONIC.
int64_t MonotonicNs();

// For texts.
inline double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace warpcall
