// Times by clocks that count nanoseconds.
#pragma once

#include <cstdint>

namespace warpcall::testing {

inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

}  // namespace warpcall::testing
