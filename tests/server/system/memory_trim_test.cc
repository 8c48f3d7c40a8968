#include "server/system/memory_trim.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <utility>
#include <vector>

namespace warpcall {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kLimitMib = 4096;
constexpr int64_t kFullMib = 3072;
constexpr int64_t kGrownMib = TrimRule::kGrownBytesMin / kMib;

// A rule that is looked at once a second.
class TrimRuleTest : public ::testing::Test {
 protected:
  // Passes a second, of which the process's threads took `cpu_ms` together.
  bool IsDue(int64_t resident_mib, int64_t cpu_ms, int64_t free_mib = 0) {
    now_.time_ns += 1'000'000'000;
    now_.cpu_ns += cpu_ms * 1'000'000;
    now_.resident_bytes = resident_mib * kMib;
    now_.free_bytes = free_mib * kMib;
    return rule_.IsDue(now_);
  }
  void Trimmed(int64_t resident_mib, int64_t free_mib = 0) {
    rule_.Trimmed(resident_mib * kMib, free_mib * kMib);
  }

  TrimRule rule_{kLimitMib * kMib};

 private:
  TrimRule::Look now_ = {
      .time_ns = 7, .cpu_ns = 9'000'000'000, .resident_bytes = 0, .free_bytes = 0};
};

TEST_F(TrimRuleTest, IsDueOnceTheProcessRestsAfterItGrew) {
  EXPECT_FALSE(IsDue(100, 0));
  EXPECT_FALSE(IsDue(100 + kGrownMib - 1, 0));
  EXPECT_FALSE(IsDue(100 + kGrownMib, 50));  // a twentieth of a core
  EXPECT_FALSE(IsDue(500, 2000));
  EXPECT_TRUE(IsDue(500, 49));
}

TEST_F(TrimRuleTest, TheFirstLookIsWhatGrowthIsCountedFrom) {
  EXPECT_FALSE(IsDue(2000, 0));
  EXPECT_FALSE(IsDue(2000, 0));
}

// Memory that cannot be given back, such as touched staging, is not tried again each second.
TEST_F(TrimRuleTest, WhatStayedIsNotTriedAgain) {
  EXPECT_FALSE(IsDue(100, 0));
  EXPECT_TRUE(IsDue(500, 0));
  Trimmed(450);
  EXPECT_FALSE(IsDue(450, 0));
  EXPECT_FALSE(IsDue(450 + kGrownMib - 1, 0));
  EXPECT_TRUE(IsDue(450 + kGrownMib, 0));
}

TEST_F(TrimRuleTest, WhatWentByItselfCountsWhenItComesBack) {
  EXPECT_FALSE(IsDue(500, 0));
  EXPECT_FALSE(IsDue(100, 1000));
  EXPECT_TRUE(IsDue(100 + kGrownMib, 0));
}

// Messages that waited while the server rested are freed: no more is resident than before.
TEST_F(TrimRuleTest, WhatIsFreedThatWasInUseTheLastTimeIsGivenBack) {
  EXPECT_FALSE(IsDue(100, 0));
  EXPECT_TRUE(IsDue(500, 0, 10));
  Trimmed(500, 10);
  EXPECT_FALSE(IsDue(500, 2000, 10 + kGrownMib));
  EXPECT_FALSE(IsDue(500, 0, 10 + kGrownMib - 1));
  EXPECT_TRUE(IsDue(500, 0, 10 + kGrownMib));
}

// It stays free, and is not resident any more.
TEST_F(TrimRuleTest, WhatWasGivenBackIsNotTriedAgain) {
  EXPECT_FALSE(IsDue(100, 0));
  EXPECT_TRUE(IsDue(500, 0, 400));
  Trimmed(100, 400);
  EXPECT_FALSE(IsDue(100, 0, 400));
  EXPECT_FALSE(IsDue(100, 0, 380));
  EXPECT_TRUE(IsDue(100, 0, 380 + kGrownMib));
}

TEST_F(TrimRuleTest, NearTheLimitItIsDueAtWorkToo) {
  EXPECT_FALSE(IsDue(100, 0));
  EXPECT_FALSE(IsDue(kFullMib - 1, 2000));
  EXPECT_TRUE(IsDue(kFullMib, 2000));
  Trimmed(kFullMib);
  EXPECT_FALSE(IsDue(kFullMib + kGrownMib - 1, 2000));
  EXPECT_TRUE(IsDue(kFullMib + kGrownMib, 2000));
}

TEST(ShedRuleTest, HalvesOnceMoreALookWhileMemoryIsOverItsLimitAndGoesBackBelowIt) {
  ShedRule rule;
  EXPECT_EQ(rule.Next(1000, 1000), 0);
  EXPECT_EQ(rule.Next(1001, 1000), ShedRule::kHalvingsMin);
  EXPECT_EQ(rule.Next(2000, 1000), ShedRule::kHalvingsMin + 1);
  EXPECT_EQ(rule.Next(1000, 1000), ShedRule::kHalvingsMin + 1);
  EXPECT_EQ(rule.Next(900, 1000), ShedRule::kHalvingsMin + 1);
  EXPECT_EQ(rule.Next(899, 1000), ShedRule::kHalvingsMin);
  EXPECT_EQ(rule.Next(0, 1000), 0);
  EXPECT_EQ(rule.Next(1001, 1001), 0);
}

TEST(ShedRuleTest, LeavesSomethingHoweverLongItLasts) {
  ShedRule rule;
  for (int i = 0; i < 100; ++i) EXPECT_LE(rule.Next(5000, 1000), ShedRule::kHalvingsMax);
}

TEST(MemoryTrimTest, TellsTheMemoryThatTheProcessUses) {
  const std::vector<char> touched(64 << 20, '\1');
  std::promise<int64_t> used;
  {
    const MemoryTrim trim(
        kLimitMib * kMib,
        [&, told = false](int64_t used_bytes) mutable {
          if (!std::exchange(told, true)) used.set_value(used_bytes);
          return true;
        },
        absl::Milliseconds(1));
    EXPECT_GE(used.get_future().get(), static_cast<int64_t>(touched.size()));
  }
}

TEST(MemoryTrimTest, EndsAtOnceHoweverLongItsPeriod) {
  const MemoryTrim trim(kLimitMib * kMib, nullptr, absl::Hours(1));
}

}  // namespace
}  // namespace warpcall
