// Benchmarks on a machine that does other work,
// runs at other clocks and changes its state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/inspect/rounds.h"

namespace warpcall::inspect {
namespace {

using ::testing::ElementsAre;

class MadeUpConditions final : public ConditionReader {
 public:
  explicit MadeUpConditions(std::function<int32_t()> clock) : clock_(std::move(clock)) {}
  DeviceConditions Read() override {
    return {.sm_clock_mhz = clock_(),
            .default_sm_clock_mhz = 1000,
            .memory_clock_mhz = 3000,
            .temperature_celsius = 60,
            .power_watts = 500,
            .throttle_reasons = {"power cap"},
            .driver = "580"};
  }

 private:
  const std::function<int32_t()> clock_;
};

TEST_F(RoundsTest, DisturbedSamplesAreTakenAgain) {
  int samples = 0;
  MadeUpSurroundings surroundings([&] { return ++samples % 2 == 0; });
  surroundings_ = &surroundings;
  int launches = 0;
  // Every other launch after the warm-up is the one that is disturbed.
  const Cost cost = [&](int64_t, int64_t) {
    return (++launches % 2 == 0 ? 1000 : 300) * kMicrosecond;
  };
  plan_.iterations = 20;
  plan_.warmup_iterations = 0;
  const v1::BenchmarkResponse report = Run({{"row", cost}});
  EXPECT_EQ(report.results(0).iterations(), 20);
  EXPECT_EQ(report.results(0).noise(), 0);
  EXPECT_FALSE(report.results(0).unstable());
  EXPECT_GE(surroundings.waits(), 1);
}

// Disturbances of copies between a row's samples say nothing about the samples.
TEST_F(RoundsTest, OnlyWhatDisturbsTheSampleItselfCounts) {
  int disturbances = 0;
  int before = 0;
  MadeUpSurroundings surroundings([&] { return disturbances > before; },
                                  [&] { before = disturbances; });
  surroundings_ = &surroundings;
  const Cost disturbed = [&](int64_t, int64_t) {
    ++disturbances;
    return 50 * kMicrosecond;
  };
  const v1::BenchmarkResponse report =
      Run({{"copy", disturbed, Family::kCpu}, {"row", Always(300 * kMicrosecond)}});
  EXPECT_GT(disturbances, 10);
  EXPECT_LT(Launches("row").size(), 150u);  // 100 of them are samples
  EXPECT_FALSE(report.results(0).unstable());
}

// A sample of 20 ms in three is taken at less than three quarters of the clock.
TEST_F(RoundsTest, SamplesAtALowClockAreDroppedAndCounted) {
  int reading = 0;
  MadeUpConditions conditions([&] { return ++reading % 3 == 0 ? 749 : 1000 - reading % 2; });
  conditions_ = &conditions;
  plan_.iterations = 20;
  plan_.warmup_iterations = 0;
  const v1::BenchmarkResponse report = Run({{"row", Always(20 * kMillisecond)}});
  EXPECT_EQ(report.results(0).iterations(), 20);
  EXPECT_EQ(report.stamp().samples_dropped(), 9);
  EXPECT_EQ(report.stamp().sm_clock_mhz_min(), 749);
  EXPECT_EQ(report.stamp().sm_clock_mhz_max(), 1000);
  EXPECT_EQ(report.stamp().temperature_celsius(), 60);
  EXPECT_THAT(report.stamp().throttle_reasons(), ElementsAre("power cap"));
}

TEST_F(RoundsTest, ADisturbanceWithoutEndIsTold) {
  MadeUpSurroundings surroundings([] { return true; });
  surroundings_ = &surroundings;
  plan_.iterations = 20;
  const v1::BenchmarkResponse report = Run({{"row", Always(300 * kMicrosecond)}});
  EXPECT_EQ(report.results(0).iterations(), 20);
  EXPECT_TRUE(report.results(0).unstable());
}

// The sample before it stays.
TEST_F(RoundsTest, ASampleThatIsDisturbedAtALowClockIsTakenAgainOnce) {
  int samples = 0;
  const auto bad = [&] { return samples >= 6 && samples <= 8; };
  MadeUpSurroundings surroundings([&] { return ++samples, bad(); });
  surroundings_ = &surroundings;
  MadeUpConditions conditions([&] { return bad() ? 500 : 1000; });
  conditions_ = &conditions;
  plan_.iterations = 20;
  plan_.warmup_iterations = 0;
  const v1::BenchmarkResponse report = Run({{"row", Always(20 * kMillisecond)}});
  EXPECT_EQ(report.results(0).iterations(), 20);
  EXPECT_EQ(report.stamp().samples_dropped(), 3);
  EXPECT_EQ(samples, 23);
  EXPECT_FALSE(report.results(0).unstable());
}

TEST_F(RoundsTest, ADisturbanceAtALowClockWithoutEndIsTold) {
  MadeUpSurroundings surroundings([] { return true; });
  surroundings_ = &surroundings;
  MadeUpConditions conditions([] { return 500; });
  conditions_ = &conditions;
  plan_.iterations = 20;
  plan_.warmup_iterations = 0;
  const v1::BenchmarkResponse report = Run({{"row", Always(20 * kMillisecond)}});
  EXPECT_EQ(report.results(0).iterations(), 20);
  EXPECT_EQ(report.stamp().samples_dropped(), 20);
  EXPECT_TRUE(report.results(0).unstable());
}

// Other work on some cores shows neither in the median's interval nor in its drift.
TEST_F(RoundsTest, ARowOfTwoSpeedsIsUnstable) {
  const auto once_in = [](int launches) {
    return [launches, count = 0](int64_t, int64_t) mutable {
      return (++count % launches == 0 ? 1000 : 1300) * kMicrosecond;
    };
  };
  const v1::BenchmarkResponse report = Run({{"often", once_in(5)}, {"seldom", once_in(20)}});
  ASSERT_EQ(report.results_size(), 2);
  for (const v1::BenchmarkResult& result : report.results()) {
    EXPECT_EQ(result.median_ns(), 1300 * kMicrosecond);
    EXPECT_EQ(result.noise(), 0);
    EXPECT_EQ(result.unstable(), result.launch().variant() == "often");
  }
}

// Slower by a third, for a time that most samples would fall into if taken one after the other.
TEST_F(RoundsTest, AStateOfTheMachineThatPassesMakesRowsUnstable) {
  const int64_t start_ns = device_.now_ns();
  const auto slower = [start_ns](int64_t ns) {
    return [=](int64_t, int64_t now_ns) {
      return now_ns - start_ns < 150 * kMillisecond ? ns * 4 / 3 : ns;
    };
  };
  const v1::BenchmarkResponse report = Run({{"row", slower(200 * kMicrosecond)},
                                            {"like it", slower(300 * kMicrosecond)},
                                            {"ten times", slower(2 * kMillisecond)},
                                            {"steady", Always(250 * kMicrosecond)}});
  ASSERT_EQ(report.results_size(), 4);
  for (const v1::BenchmarkResult& result : report.results()) {
    const std::string name = result.launch().variant();
    EXPECT_EQ(result.unstable(), name != "steady") << name;
    EXPECT_EQ(result.iterations(), 100) << name;
  }
  EXPECT_GT(rested_ns_, 0);
  EXPECT_LE(rested_ns_, 300 * kMillisecond);
}

// However many groups there are.
TEST_F(RoundsTest, FastRowsTakeAThirdOfASecondMore) {
  const int64_t start_ns = device_.now_ns();
  const v1::BenchmarkResponse report = Run({{"a", Always(10 * kMicrosecond)},
                                            {"b", Always(50 * kMicrosecond)},
                                            {"c", Always(250 * kMicrosecond)},
                                            {"d", Always(1250 * kMicrosecond)}});
  EXPECT_GE(device_.now_ns() - start_ns, 300 * kMillisecond);
  EXPECT_LE(device_.now_ns() - start_ns, 600 * kMillisecond);
  EXPECT_EQ(report.results(0).verdict(), "fastest");
}

TEST_F(RoundsTest, WhatTakesLongByItselfDoesNotRest) {
  Run({{"row", Always(5 * kMillisecond)}});
  EXPECT_EQ(rested_ns_, 0);
}

class GpuRoundsTest : public RoundsTest {
 protected:
  GpuRoundsTest() : RoundsTest(DeviceKind::kCuda) {}
};

TEST_F(GpuRoundsTest, AServerAtWorkGetsAsMuchTimeAsASampleTakes) {
  MadeUpSurroundings surroundings([] { return false; });
  surroundings.SetServerAtWork();
  surroundings_ = &surroundings;
  plan_.iterations = 10;
  Run({{"row", Always(5 * kMillisecond)}});
  EXPECT_EQ(rested_ns_, 50 * kMillisecond);
}

TEST_F(GpuRoundsTest, NoTimeIsLeftToAServerWithoutWork) {
  MadeUpSurroundings surroundings([] { return false; });
  surroundings_ = &surroundings;
  Run({{"row", Always(5 * kMillisecond)}});
  EXPECT_EQ(rested_ns_, 0);
}

TEST_F(GpuRoundsTest, TheRestEndsAtTheDeadline) {
  MadeUpSurroundings surroundings([] { return false; });
  surroundings.SetServerAtWork();
  surroundings_ = &surroundings;
  plan_.deadline_ns = device_.now_ns() + 6 * kSecond + kSecond / 2;
  const v1::BenchmarkResponse report = Run({{"row", Always(kSecond)}});
  EXPECT_EQ(report.results(0).iterations(), 3);
  EXPECT_EQ(device_.now_ns(), plan_.deadline_ns);
}

TEST_F(GpuRoundsTest, ADriftIsNoReasonToCallItUnstable) {
  const int64_t start_ns = device_.now_ns();
  const Cost drifting = [start_ns](int64_t, int64_t now_ns) {
    return 200 * kMicrosecond + (now_ns - start_ns) / 1000;
  };
  EXPECT_FALSE(Run({{"row", drifting}}).results(0).unstable());
}

}  // namespace
}  // namespace warpcall::inspect
