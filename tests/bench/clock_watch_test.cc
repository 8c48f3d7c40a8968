#include "tests/bench/clock_watch.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace warpcall::bench {
namespace {

// One of these after the other.
class ToldConditions final : public ConditionReader {
 public:
  explicit ToldConditions(std::vector<DeviceConditions> told) : told_(std::move(told)) {}
  DeviceConditions Read() override { return told_.at(reads_++); }
  size_t reads() const { return reads_; }

 private:
  const std::vector<DeviceConditions> told_;
  size_t reads_ = 0;
};

DeviceConditions At(int32_t mhz, double watts, std::vector<std::string> reasons) {
  return {.sm_clock_mhz = mhz,
          .default_sm_clock_mhz = 1980,
          .memory_clock_mhz = 3201,
          .temperature_celsius = 50,
          .power_watts = watts,
          .throttle_reasons = std::move(reasons),
          .driver = ""};
}

TEST(ClockWatchTest, CountsSamplesBelowThreeQuartersOfTheDefaultClock) {
  ToldConditions conditions({At(1980, 300, {}), At(1485, 700.4, {"power cap"}),
                             At(1484, 650, {"power cap", "power brake"})});
  int64_t now_ns = 1'000'000'000;
  ClockWatch watch(&conditions, [&] { return now_ns; });
  EXPECT_FALSE(watch.RunsSlowly());
  now_ns += 10'000'000;
  EXPECT_FALSE(watch.RunsSlowly());
  now_ns += 10'000'000;
  EXPECT_TRUE(watch.RunsSlowly());
  EXPECT_EQ(watch.Describe(),
            "SM clock 1484 to 1980 MHz, memory clock 3201 MHz, at most 50 °C and 700 W, throttled: "
            "power cap and power brake, samples dropped: 1");
}

TEST(ClockWatchTest, LooksEveryTenMilliseconds) {
  ToldConditions conditions({At(1000, 1, {}), At(1000, 1, {})});
  int64_t now_ns = 0;
  ClockWatch watch(&conditions, [&] { return now_ns; });
  EXPECT_TRUE(watch.RunsSlowly());
  now_ns = 9'999'999;
  EXPECT_FALSE(watch.RunsSlowly());
  EXPECT_EQ(conditions.reads(), 1u);
  now_ns = 10'000'000;
  EXPECT_TRUE(watch.RunsSlowly());
}

TEST(ClockWatchTest, KnowsNothingWhereNothingTells) {
  ClockWatch watch(nullptr);
  EXPECT_FALSE(watch.RunsSlowly());
  EXPECT_EQ(watch.Describe(), "not known");
}

TEST(ClockWatchTest, SaysWhenNothingHeldTheClockDown) {
  ToldConditions conditions({At(1980, 300, {})});
  ClockWatch watch(&conditions, [] { return int64_t{1}; });
  EXPECT_FALSE(watch.RunsSlowly());
  EXPECT_NE(watch.Describe().find("throttled: no, samples dropped: 0"), std::string::npos);
}

}  // namespace
}  // namespace warpcall::bench
