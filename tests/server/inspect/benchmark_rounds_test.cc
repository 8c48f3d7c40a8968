// The order of rows in a benchmark, their time, and the figures made from their samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/inspect/rounds.h"

namespace warpcall::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The device loses an eighth of its speed over the run. Measured one after the other, "b" would be
// the faster one.
TEST_F(RoundsTest, ADriftMeetsAllRowsAlike) {
  const int64_t start_ns = device_.now_ns();
  const auto drifting = [start_ns](double ns) {
    return [=](int64_t, int64_t now_ns) {
      const double share = static_cast<double>(now_ns - start_ns) / (400.0 * kMillisecond);
      return std::llround(ns * (1 + 0.14 * share));
    };
  };
  plan_.iterations = 200;
  const v1::BenchmarkResponse report =
      Run({{"b", drifting(103e3)}, {"a", drifting(100e3)}, {"c", drifting(300e3)}});
  ASSERT_EQ(report.results_size(), 3);
  EXPECT_EQ(report.results(1).verdict(), "fastest");
  EXPECT_LT(report.results(1).median_ns(), report.results(0).median_ns());
  const double ratio = report.results(0).median_ns() / report.results(1).median_ns();
  EXPECT_NEAR(ratio, 1.03, 0.01);
  EXPECT_NEAR(report.results(2).median_ns() / report.results(1).median_ns(), 3, 0.03);
}

TEST_F(RoundsTest, ANoisyRowIsUnstableAndHasNoRank) {
  std::mt19937 random(7);
  const Cost noisy = [&](int64_t, int64_t) { return 60 * kMicrosecond << (random() % 6); };
  plan_.iterations = 30;
  const v1::BenchmarkResponse report =
      Run({{"steady", Always(200 * kMicrosecond)}, {"noisy", noisy}});
  ASSERT_EQ(report.results_size(), 2);
  EXPECT_EQ(report.results(0).verdict(), "fastest");
  EXPECT_FALSE(report.results(0).unstable());
  EXPECT_EQ(report.results(0).noise(), 0);
  EXPECT_TRUE(report.results(1).unstable());
  EXPECT_GT(report.results(1).noise(), kNoiseMax);
  EXPECT_EQ(report.results(1).verdict(), "");
  EXPECT_LT(report.results(1).median_low_ns(), report.results(1).median_high_ns());
}

// Nothing that a launch has computed lies there for the next one of its sample.
TEST_F(RoundsTest, BeforeAWitnessASampleUsesEachSetOnce) {
  class Witness final : public SampleWitness {
   public:
    explicit Witness(const std::vector<std::string>& launches) : launches_(launches) {}
    absl::Status Before(const Row&, OperandSets*) override {
      before_ = launches_.size();
      return absl::OkStatus();
    }
    absl::Status After(const Row&, OperandSets* sets, RowTimer::SetsUsed used) override {
      ++samples_;
      EXPECT_EQ(launches_.size() - before_, static_cast<size_t>(used.count));
      EXPECT_LE(used.count, sets->size());
      return absl::OkStatus();
    }
    int samples() const { return samples_; }

   private:
    const std::vector<std::string>& launches_;
    size_t before_ = 0;
    int samples_ = 0;
  } witness(launches_);
  witness_ = &witness;
  plan_.iterations = 5;
  EXPECT_EQ(Run({{"short", Always(100)}, {"long", Always(200 * kMicrosecond)}}).results_size(), 2);
  EXPECT_GE(witness.samples(), 10);
}

TEST_F(RoundsTest, OneSampleTellsNothingOfItsNoise) {
  plan_.iterations = 1;
  const v1::BenchmarkResponse report = Run({{"steady", Always(200 * kMicrosecond)}});
  EXPECT_TRUE(report.results(0).unstable());
}

// Rows of one speed are reported together, fastest first, whatever the order of the request.
TEST_F(RoundsTest, ResultsComeAsGroupsAreDone) {
  plan_.iterations = 3;
  const v1::BenchmarkResponse report = Run({{"slow", Always(50 * kMillisecond)},
                                            {"fast", Always(30 * kMicrosecond)},
                                            {"slower", Always(150 * kMillisecond)},
                                            {"middling", Always(1 * kMillisecond)},
                                            {"less fast", Always(100 * kMicrosecond)}});
  EXPECT_THAT(told_, ElementsAre(ElementsAre("fast", "less fast"), ElementsAre("middling"),
                                 ElementsAre("slow", "slower")));
  ASSERT_EQ(report.results_size(), 5);
  EXPECT_EQ(report.results(0).launch().variant(), "slow");
  EXPECT_EQ(report.results(1).verdict(), "fastest");
  EXPECT_EQ(report.results(3).verdict(), "slower by 3233 %");
}

// Only the row's last launches before the order is made are held up.
TEST_F(RoundsTest, ARowThatWasHeldUpOnceIsNotPutLast) {
  int launches = 0;
  const Cost held_up = [&](int64_t, int64_t) {
    return ++launches >= 8 && launches <= 16 ? 20 * kMillisecond : 30 * kMicrosecond;
  };
  const v1::BenchmarkResponse report =
      Run({{"slow", Always(1 * kMillisecond)}, {"held up", held_up}});
  EXPECT_THAT(told_, ElementsAre(ElementsAre("held up"), ElementsAre("slow")));
  EXPECT_EQ(report.results(1).verdict(), "fastest");
}

TEST_F(RoundsTest, TimeCutsSamplesAndMoreTimeBringsThem) {
  for (const int64_t timeout_ns : {int64_t{0}, 60 * kSecond}) {
    registry_ = Registry();
    plan_ = {};
    plan_.timeout_ns = timeout_ns;
    const v1::BenchmarkResponse report = Run({{"slow", Always(400 * kMillisecond)}});
    ASSERT_EQ(report.results_size(), 1);
    EXPECT_EQ(report.results(0).iterations(), timeout_ns > 0 ? 100 : 3);
    EXPECT_FALSE(report.results(0).unstable());
  }
}

TEST_F(RoundsTest, LittleNoiseIsEnoughWhereItIsAskedFor) {
  plan_.max_noise = 0.01;
  std::mt19937 random(7);
  const Cost noisy = [&](int64_t, int64_t) { return 200 * kMicrosecond + random() % 100'000; };
  const v1::BenchmarkResponse report =
      Run({{"steady", Always(200 * kMicrosecond)}, {"noisy", noisy}});
  ASSERT_EQ(report.results_size(), 2);
  // Ten are enough, and three of each block that follows.
  EXPECT_EQ(report.results(0).iterations(), 19);
  EXPECT_GT(report.results(1).iterations(), 19);
}

class LargeRoundsTest : public RoundsTest {
 protected:
  // Large enough that rows are predicted: 32 MiB in and out.
  LargeRoundsTest() { elements_ = int64_t{4} << 20; }
  static Cost PerByte(double ns) {
    return [ns](int64_t bytes, int64_t) { return std::llround(ns * static_cast<double>(bytes)); };
  }
};

TEST_F(LargeRoundsTest, ASlowRowIsSkippedWithItsEstimate) {
  const v1::BenchmarkResponse report = Run({{"slow", PerByte(2400)}, {"fast", PerByte(1)}});
  ASSERT_EQ(report.results_size(), 2);
  const v1::BenchmarkResult& slow = report.results(0);
  EXPECT_NEAR(slow.predicted_ns(), 40.3e9, 0.1e9);
  EXPECT_EQ(slow.median_ns(), 0);
  EXPECT_THAT(slow.error(),
              HasSubstr("predicted to take 40.3 s, and at least 2 launches must fit into 10 s"));
  EXPECT_THAT(slow.error(), HasSubstr("raise timeout_ns (--timeout) to 101"));
  EXPECT_EQ(report.results(1).verdict(), "fastest");
  EXPECT_GE(report.results(1).iterations(), 10);
  EXPECT_THAT(told_, ElementsAre(ElementsAre("slow"), ElementsAre("fast")));
  // Nothing but two launches of a piece.
  EXPECT_EQ(Launches("slow").size(), 2u);
}

// Something held up every launch of the first piece.
TEST_F(LargeRoundsTest, ARowThatWasHeldUpOnceIsNotSkipped) {
  int launches = 0;
  elements_ = int64_t{16} << 20;
  plan_.timeout_ns = 2 * kSecond;
  const Cost held_up = [&](int64_t bytes, int64_t) {
    const int64_t ns = 2 * bytes;
    return ++launches <= 6 ? 100 * kMillisecond + ns : ns;
  };
  plan_.iterations = 3;
  const v1::BenchmarkResponse report = Run({{"held up", held_up}});
  ASSERT_EQ(report.results_size(), 1);
  EXPECT_EQ(report.results(0).error(), "");
}

TEST_F(LargeRoundsTest, ASlowRowIsMeasuredWithTheTimeThatItsErrorNames) {
  plan_.timeout_ns = 101 * kSecond;
  const v1::BenchmarkResponse report = Run({{"slow", PerByte(2400)}});
  ASSERT_EQ(report.results_size(), 1);
  EXPECT_EQ(report.results(0).error(), "");
  EXPECT_NEAR(report.results(0).median_ns(), 40.3e9, 0.1e9);
}

// Which looks fast on pieces, and is stopped.
TEST_F(LargeRoundsTest, ARowThatWasPredictedWrongIsStopped) {
  const Cost growing = [](int64_t bytes, int64_t) {
    return bytes < (16 << 20) ? 30 * kMillisecond : 100 * kSecond;
  };
  const v1::BenchmarkResponse report = Run({{"growing", growing}, {"fast", PerByte(1)}});
  ASSERT_EQ(report.results_size(), 2);
  EXPECT_THAT(report.results(0).error(), HasSubstr("skipped: a launch"));
  EXPECT_NEAR(report.results(0).predicted_ns(), 10e9, 0.1e9);
  EXPECT_EQ(report.results(1).verdict(), "fastest");
}

TEST_F(LargeRoundsTest, RowsThatAreNotReachedSaySo) {
  plan_.deadline_ns = device_.now_ns() + 10 * kSecond;
  const v1::BenchmarkResponse report =
      Run({{"slow", PerByte(200)}, {"fast", PerByte(1)}, {"slower", PerByte(250)}});
  ASSERT_EQ(report.results_size(), 3);
  EXPECT_EQ(report.results(1).verdict(), "fastest");
  EXPECT_GE(report.results(1).iterations(), 10);
  for (const int i : {0, 2}) {
    EXPECT_THAT(report.results(i).error(), HasSubstr("not reached before the call's deadline"));
  }
  EXPECT_LT(device_.now_ns(), plan_.deadline_ns + kSecond);
}

TEST_F(RoundsTest, CopiesAreTakenBetweenTheRows) {
  plan_.iterations = 400;
  Run({{"copy", Always(50 * kMicrosecond), Family::kCpu}, {"row", Always(200 * kMicrosecond)}});
  ASSERT_GT(launches_.size(), 400u);
  const size_t quarter = launches_.size() / 4;
  for (size_t begin = 0; begin + quarter <= launches_.size(); begin += quarter)
    EXPECT_GT(std::count(launches_.begin() + static_cast<ptrdiff_t>(begin),
                         launches_.begin() + static_cast<ptrdiff_t>(begin + quarter), "copy"),
              5)
        << begin;
}

TEST_F(RoundsTest, TheCeilingIsOfCopiesAsLargeAsTheProblem) {
  const v1::BenchmarkResponse report =
      Run({{"copy", [](int64_t bytes, int64_t) { return 2 * bytes; }, Family::kCpu},
           {"row", [](int64_t bytes, int64_t) { return 4 * bytes; }}});
  EXPECT_NEAR(report.ceiling_bytes_per_second(), 1e9, 1e6);
}

// Benchmarks on a machine that does other work,
// runs at other clocks and changes its state.

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

// A GPU that draws 700 W, and whose clock falls for 5 s.
class FallingClock final : public ConditionReader {
 public:
  FallingClock(const testing::TimedDevice& device, const int64_t& rested_ns)
      : device_(device), rested_ns_(rested_ns) {}
  int32_t mhz() const { return 1680 + std::max(0, 300 - static_cast<int32_t>(60 * seconds())); }
  DeviceConditions Read() override {
    ++reads;
    const bool is_idle = std::exchange(rested_ns_at_last_read_, rested_ns_) < rested_ns_;
    return {.sm_clock_mhz = mhz(),
            .temperature_celsius = 40 + std::min(30, static_cast<int32_t>(seconds())),
            .power_watts = is_idle ? 90.0 : 700.0,
            .energy_joules = 1000 + 700 * seconds()};
  }
  int reads = 0;

 private:
  double seconds() const { return static_cast<double>(device_.now_ns() - start_ns_) / kSecond; }

  const testing::TimedDevice& device_;
  const int64_t& rested_ns_;
  int64_t rested_ns_at_last_read_ = 0;
  const int64_t start_ns_ = device_.now_ns();
};

TEST_F(RoundsTest, ASettledRunTimesRowsAtTheClockThatStays) {
  FallingClock gpu(device_, rested_ns_);
  conditions_ = &gpu;
  plan_.settled = true;
  const auto at_clock = [&](double ns) {
    return [&gpu, ns](int64_t, int64_t) { return std::llround(ns * 1680 / gpu.mhz()); };
  };
  const int64_t start_ns = device_.now_ns();
  const v1::BenchmarkResponse report = Run({{"a", at_clock(1e6)}, {"b", at_clock(2e6)}});
  EXPECT_EQ(report.method(), "settled");
  for (int i = 0; i < 2; ++i) {
    const v1::BenchmarkResult& result = report.results(i);
    EXPECT_EQ(result.min_ns(), (i + 1) * 1e6) << "samples of a faster clock";
    EXPECT_NEAR(result.median_ns(), (i + 1) * 1e6, 1);
    EXPECT_EQ(result.settled_clock_mhz(), 1680);
    EXPECT_EQ(result.settled_power_watts(), 700);
    EXPECT_GT(result.settled_temperature_celsius(), 45);
    EXPECT_NEAR(result.energy_joules(), (i + 1) * 0.7, 0.01);
    // Two turns of 3 s.
    EXPECT_NEAR(static_cast<double>(result.iterations() * result.launches_per_iteration()) *
                    result.median_ns(),
                6e9, 0.1e9);
  }
  EXPECT_EQ(report.stamp().idle_power_watts(), 90);
  EXPECT_EQ(report.results(0).verdict(), "fastest");
  // In order, and then in reverse.
  std::vector<std::string> turns = Launches();
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());
  ASSERT_GE(turns.size(), 3u);
  EXPECT_THAT(std::vector(turns.end() - 3, turns.end()), ElementsAre("a", "b", "a"));
  EXPECT_LT(device_.now_ns() - start_ns, 40 * kSecond);
  EXPECT_LT(gpu.reads, 400);
}

TEST_F(RoundsTest, ASettledRunOfAClockThatNeverStaysEnds) {
  int reads = 0;
  MadeUpConditions conditions([&] { return ++reads / 30 % 2 == 0 ? 1000 : 1900; });
  conditions_ = &conditions;
  plan_.settled = true;
  const int64_t start_ns = device_.now_ns();
  const v1::BenchmarkResponse report = Run({{"row", Always(kMillisecond)}});
  EXPECT_EQ(report.results(0).error(), "");
  EXPECT_EQ(report.results(0).energy_joules(), 0) << "this GPU does not count energy";
  EXPECT_LT(device_.now_ns() - start_ns, 30 * kSecond);
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
