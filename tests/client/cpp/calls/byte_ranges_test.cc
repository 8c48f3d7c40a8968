#include "client/cpp/calls/byte_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace warpcall::client {
namespace {

TEST(ByteRangesTest, AgreesWithASetOfBytes) {
  std::minstd_rand random(20261121);
  for (int round = 0; round < 300; ++round) {
    ByteRanges ranges;
    std::vector<bool> there(64);
    for (int i = 0; i < 40; ++i) {
      const size_t offset = random() % 64;
      const size_t bytes = random() % (65 - offset) % 9;
      const auto begin = there.begin() + static_cast<std::ptrdiff_t>(offset);
      const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
      const bool free = std::find(begin, end, true) == end;
      ASSERT_EQ(ranges.Add(static_cast<int64_t>(offset), static_cast<int64_t>(bytes)), free);
      if (free) std::fill(begin, end, true);
      ASSERT_EQ(ranges.bytes(), std::count(there.begin(), there.end(), true));
    }
  }
}

}  // namespace
}  // namespace warpcall::client
