#include "server/self_test/rate.h"

#include <gtest/gtest.h>

#include "kernels/gelu/gelu.h"
#include "kernels/matmul/matmul.h"

namespace warpcall::self_test {
namespace {

TEST(RateTest, TheRestBeyondTheSmallRunIsTheBytes) {
  const ServiceRate rate = RateOf({{.bytes = 1'000, .flops = 0}, {.kernel_ns = 5'000}},
                                  {{.bytes = 1'000'000, .flops = 0},
                                   {.h2d_ns = 100'000, .kernel_ns = 305'000, .d2h_ns = 100'000}},
                                  {.by_flops = false});
  EXPECT_EQ(rate.fixed_ns, 5'000);
  EXPECT_EQ(rate.bytes_per_ns, 2);
  EXPECT_GT(rate.flops_per_ns, 1e6);
}

TEST(RateTest, WhereFlopsGrowFasterTheKernelsTimeIsTheirs) {
  const TimedRun small = {{.bytes = 1'000, .flops = 10'000}, {.kernel_ns = 1'000}};
  TimedRun large = {{.bytes = 1'000'000, .flops = 200'000'000}, {.kernel_ns = 101'000}};
  ServiceRate rate = RateOf(small, large, {.by_flops = true, .memory_bytes_per_ns = 7});
  EXPECT_EQ(rate.flops_per_ns, 2'000);
  EXPECT_EQ(rate.bytes_per_ns, 7);
  large.times.h2d_ns = 150'000;
  large.times.d2h_ns = 50'000;
  rate = RateOf(small, large, {.by_flops = true, .memory_bytes_per_ns = 7});
  EXPECT_EQ(rate.flops_per_ns, 2'000);
  EXPECT_EQ(rate.bytes_per_ns, 5);
}

// The smallest problem already took long enough.
TEST(RateTest, OneRunIsAllThereIs) {
  const TimedRun only = {{.bytes = 10'000, .flops = 100'000}, {.kernel_ns = 2'000'000}};
  const ServiceRate bytes = RateOf(only, only, {.by_flops = false});
  EXPECT_EQ(bytes.fixed_ns, 0);
  EXPECT_EQ(bytes.bytes_per_ns, 0.005);
  EXPECT_EQ(RateOf(only, only, {.by_flops = true}).flops_per_ns, 0.05);
}

TEST(RateTest, AClockThatSawNothingGivesARateAllTheSame) {
  const TimedRun small = {{.bytes = 1'000, .flops = 0}, {.kernel_ns = 500}};
  const TimedRun large = {{.bytes = 4'000, .flops = 0}, {.kernel_ns = 400}};
  EXPECT_EQ(RateOf(small, large, {}).bytes_per_ns, 4'000);
}

// Takes `ns_per_byte` for a byte and `ns_per_flop` for a FLOP, and counts.
struct MadeUpRow {
  const Op& op;
  double ns_per_byte;
  double ns_per_flop;
  // The runs first .. last, from 1, take so much longer.
  struct Delay {
    int first = 0;
    int last = -1;
    double ns = 0;
  } delay = {};
  int runs = 0;
  int64_t bytes_max = 0;

  absl::StatusOr<StreamTimes> Run(const Problem& problem) {
    ++runs;
    const Work work = op.work(problem);
    bytes_max = std::max(bytes_max, work.bytes);
    const bool delayed = delay.first <= runs && runs <= delay.last;
    return StreamTimes{
        .kernel_ns = static_cast<int64_t>(1'000 + ns_per_byte * static_cast<double>(work.bytes) +
                                          ns_per_flop * static_cast<double>(work.flops) +
                                          (delayed ? delay.ns : 0))};
  }
  ServiceRate Measure() {
    const absl::StatusOr<ServiceRate> rate =
        MeasureRate({.op = &op, .sized = op.cases().sized, .elements_max = 1 << 20},
                    [this](const Problem& problem) { return Run(problem); });
    EXPECT_TRUE(rate.ok()) << rate.status();
    return rate.value_or(ServiceRate());
  }
};

TEST(RateTest, ProblemsGrowUntilOneTakesAMillisecond) {
  MadeUpRow slow{GeluOp(), 1, 0};
  EXPECT_NEAR(slow.Measure().bytes_per_ns, 1, 0.01);
  EXPECT_LE(slow.bytes_max, 4 << 20);
  EXPECT_GE(slow.bytes_max, 1 << 20);
  MadeUpRow fast{GeluOp(), 0.001, 0};
  EXPECT_NEAR(fast.Measure().bytes_per_ns, 1000, 10);
  EXPECT_EQ(fast.bytes_max, 8 << 20);
}

TEST(RateTest, AMatrixProductsRateIsThatOfItsFlops) {
  MadeUpRow reference{MatmulOp(), 0, 1};  // a GFLOP/s
  const ServiceRate rate = reference.Measure();
  EXPECT_NEAR(rate.flops_per_ns, 1, 0.05);
  // 3072^3 would take a minute, whatever its bytes.
  EXPECT_NEAR(2 * 3072.0 * 3072 * 3072 / rate.flops_per_ns, 58e9, 4e9);
  EXPECT_LE(reference.runs, 8);
}

// A library that makes itself ready for the first problem, on a busy machine: 8 KiB in 8 ms would
// be a thousandth of a byte per ns, and the first request of a mebibyte seem to take a second.
TEST(RateTest, WhatHoldsUpTheSmallestProblemIsNoRate) {
  for (const int last : {1, 2, 3, 4, 6}) {
    MadeUpRow row{GeluOp(), 1, 0, {1, last, 8e6}};
    EXPECT_NEAR(row.Measure().bytes_per_ns, 1, 0.1) << "runs 1 to " << last;
  }
  MadeUpRow row{MatmulOp(), 0, 1, {1, 4, 8e6}};
  EXPECT_NEAR(row.Measure().flops_per_ns, 1, 0.2);  // the second problem is an eighth
}

TEST(RateTest, WhatHoldsUpTwoRunsOfALargerProblemIsNoRate) {
  for (const int first : {3, 4, 5}) {
    MadeUpRow row{GeluOp(), 1, 0, {first, first + 1, 8e6}};
    EXPECT_NEAR(row.Measure().bytes_per_ns, 1, 0.1) << "runs from " << first;
  }
}

TEST(RateTest, WhatTheRowRefusesHasNoRate) {
  const Op& op = GeluOp();
  const auto rate =
      MeasureRate({.op = &op, .sized = op.cases().sized, .elements_max = 1 << 20},
                  [](const Problem&) { return absl::UnimplementedError("only columns"); });
  EXPECT_EQ(rate.status().message(), "only columns");
}

}  // namespace
}  // namespace warpcall::self_test
