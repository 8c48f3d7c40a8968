#include "client/cli/profile/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace warpcall::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Profiled OnGpu() {
  Profiled profiled;
  profiled.report.set_device("cuda:0");
  profiled.report.set_iterations(1);
  profiled.device.name = "cuda:0";
  profiled.device.kind = "cuda";
  profiled.device.multiprocessors = 132;  // 47.3 TFLOP/s of float32 lanes at least
  profiled.device.compute_capability = "9.0";
  return profiled;
}

Profiled OnCpu() {
  Profiled profiled;
  profiled.report.set_device("cpu");
  profiled.report.set_iterations(1);
  profiled.device.name = profiled.device.kind = "cpu";
  profiled.device.multiprocessors = 8;
  return profiled;
}

struct Case {
  const char* what;
  Figures figures;
  Bound bound;
  const char* reason;  // a part of it
};

void ExpectAll(const Profiled& profiled, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const Verdict verdict = Judge(profiled, c.figures);
    EXPECT_STREQ(BoundName(verdict.bound), BoundName(c.bound)) << verdict.reason;
    EXPECT_THAT(verdict.reason, HasSubstr(c.reason));
    EXPECT_EQ(verdict.reason.back(), '.');
    EXPECT_EQ(verdict.advice.empty(), c.bound == Bound::kUnknown);
  }
}

TEST(VerdictTest, OfAGpuWithCounters) {
  // A millisecond of one kernel.
  const auto counted = [](double sm, double dram) {
    return Figures{.kernel_ns = 1e6, .kernels = 1, .sm_throughput = sm, .dram_throughput = dram};
  };
  Figures twice = counted(0.2, 0.9);
  twice.least_bytes = 1 << 20;
  twice.passes = 2.1;
  ExpectAll(OnGpu(),
            {{"memory, just", counted(0.3, 0.6), Bound::kMemory, "memory works at 60.0%"},
             {"not quite", counted(0.3, 0.599), Bound::kLatency, "memory (59.9%)"},
             {"multiprocessors, just", counted(0.6, 0.3), Bound::kCompute, "work at 60.0%"},
             {"both, memory more", counted(0.8, 0.81), Bound::kMemory, "81.0%"},
             {"both, multiprocessors more", counted(0.82, 0.81), Bound::kCompute, "82.0%"},
             {"more than once over its bytes", twice, Bound::kMemory, "2.1 times the least"},
             {"neither", counted(0.1, 0.1), Bound::kLatency, "arithmetic (10.0%)"}});
  EXPECT_THAT(Judge(OnGpu(), twice).advice, Contains(HasSubstr("each byte once")));
  EXPECT_THAT(Judge(OnGpu(), counted(0.2, 0.9)).advice, Not(Contains(HasSubstr("each byte once"))));
}

TEST(VerdictTest, OfAGpuWithoutCounters) {
  const auto told = [](double fraction_of_ceiling, double flops_per_second) {
    return Figures{.kernel_ns = 1e6,
                   .kernels = 1,
                   .ceiling_bytes_per_second = 4e12,
                   .bytes_per_second = 4e12 * fraction_of_ceiling,
                   .flops_per_second = flops_per_second,
                   .fraction_of_ceiling = fraction_of_ceiling};
  };
  ExpectAll(OnGpu(), {{"as fast as a copy", told(0.98, 1e12), Bound::kMemory,
                       "3.92 TB/s are 98.0% of the 4.00 TB/s that a copy reaches on cuda:0"},
                      {"the border", told(0.6, 1e12), Bound::kMemory, "60.0%"},
                      {"below it", told(0.59, 1e12), Bound::kLatency, "memory (59.0%)"},
                      {"tensor cores", told(0.1, 5e14), Bound::kCompute, "500 TFLOP/s"},
                      {"nothing told",
                       {.kernel_ns = 1e6, .kernels = 1},
                       Bound::kUnknown,
                       "neither counters nor the least bytes are known"}});
  EXPECT_THAT(Judge(OnGpu(), told(1.05, 0)).reason, Not(HasSubstr("caches")));
  EXPECT_THAT(Judge(OnGpu(), told(1.06, 0)).reason, HasSubstr("came from caches"));
}

TEST(VerdictTest, OfTheCpu) {
  const auto worked = [](double threads_busy, double fraction_of_ceiling) {
    return Figures{.kernel_ns = 1e6,
                   .kernels = 1,
                   .ceiling_bytes_per_second = 2e10,
                   .bytes_per_second = 2e10 * fraction_of_ceiling,
                   .fraction_of_ceiling = fraction_of_ceiling,
                   .passes_max = 1 / fraction_of_ceiling,
                   .threads_busy = threads_busy};
  };
  Figures counted = worked(0.99, 0.2);
  counted.instructions = 3e6;
  counted.cycles = 2e6;
  counted.counted_bytes = 8000;  // 8 MB a second
  counted.passes = 0.5;
  Figures missing = counted;
  missing.counted_bytes = 12.1e6;  // 12.1 GB/s
  missing.least_bytes = 4e6;
  missing.passes = 3.02;
  ExpectAll(
      OnCpu(),
      {{"as fast as a copy", worked(0.99, 0.6), Bound::kMemory, "60.0% of the 20.0 GB/s"},
       {"somewhat faster", worked(0.99, 1.05), Bound::kMemory, "105.0% of the 20.0 GB/s"},
       {"from caches", worked(0.99, 1.06), Bound::kCompute, "Over 100% of a copy"},
       {"busy", worked(0.7, 0.2), Bound::kCompute, "up to 5.0 passes over memory"},
       {"idle", worked(0.69, 0.2), Bound::kLatency, "8 threads were busy 69.0% of the time"},
       {"counted", counted, Bound::kCompute, "1.50 instructions a cycle"},
       {"counted misses", missing, Bound::kMemory, "3.0 times the least, 3.81 MiB"},
       {"an older server", {.kernel_ns = 1e6}, Bound::kUnknown, "the work of the CPU's threads"}});
  EXPECT_THAT(Judge(OnCpu(), counted).reason, Not(HasSubstr("could tell")));
}

TEST(VerdictTest, OfABusyMachine) {
  Figures figures{.kernel_ns = 1e6, .threads_busy = 0.8, .threads_waiting = 0.1};
  const Verdict verdict = Judge(OnCpu(), figures);
  EXPECT_THAT(verdict.reason, HasSubstr("waited 10.0% of the time for a core."));
  EXPECT_THAT(verdict.advice.front(), HasSubstr("while nothing else runs"));
  // Its time says nothing of passes.
  figures.passes_max = 5;
  EXPECT_THAT(Judge(OnCpu(), figures).reason, Not(HasSubstr("passes over memory")));
  // Nine tenths of the time there were cores: seven tenths of those are worked, or not quite.
  figures.threads_busy = 0.631;
  EXPECT_EQ(Judge(OnCpu(), figures).bound, Bound::kCompute);
  figures.threads_busy = 0.629;
  EXPECT_EQ(Judge(OnCpu(), figures).bound, Bound::kLatency);
  figures.threads_waiting = 0.07;
  EXPECT_THAT(Judge(OnCpu(), figures).reason, Not(HasSubstr("waited")));
  // None of the time is no work, however long the threads waited.
  figures.threads_waiting = 1;
  figures.threads_busy = 0;
  EXPECT_EQ(Judge(OnCpu(), figures).bound, Bound::kLatency);
}

TEST(VerdictTest, OfAMachineThatOtherWorkHas) {
  Profiled profiled = OnCpu();
  profiled.report.set_inconclusive("other work took 88 % of the threads' time");
  // Whatever the times look like.
  const Figures waiting{.kernel_ns = 1e6, .threads_busy = 0.12, .threads_waiting = 0.88};
  const Figures copying{.kernel_ns = 1e6, .fraction_of_ceiling = 1.2, .threads_busy = 0.9};
  const Figures moving{.kernel_ns = 1e6, .transfer_ns = 2e6, .threads_busy = 0.9};
  const Figures pausing{.kernel_ns = 1e6, .gap_ns = 2e6, .threads_busy = 0.9};
  const Figures brief{.kernel_ns = 10, .kernels = 1, .threads_busy = 0.9};
  for (const Figures& figures : {waiting, copying, moving, pausing, brief}) {
    const Verdict verdict = Judge(profiled, figures);
    EXPECT_STREQ(BoundName(verdict.bound), "inconclusive");
    EXPECT_EQ(verdict.reason, "other work took 88 % of the threads' time.");
    EXPECT_TRUE(verdict.advice.empty());
  }
}

// Its kernels take their own time, whatever the host does.
TEST(VerdictTest, OfAGpuWhoseHostDoesOtherWork) {
  Profiled profiled = OnGpu();
  profiled.report.set_inconclusive("other work took 60 % of the threads' time");
  const auto figures = [](double gap_ns, double transfer_ns) {
    return Figures{
        .kernel_ns = 1e6, .gap_ns = gap_ns, .transfer_ns = transfer_ns, .dram_throughput = 0.9};
  };
  EXPECT_EQ(Judge(profiled, figures(5e5, 5e5)).bound, Bound::kMemory);
  EXPECT_EQ(Judge(profiled, figures(1.1e6, 0)).bound, Bound::kInconclusive);
  EXPECT_EQ(Judge(profiled, figures(0, 1.1e6)).bound, Bound::kInconclusive);
}

TEST(VerdictTest, OfLaunches) {
  const auto short_one = [](double kernel_ns, double kernels) {
    return Figures{.kernel_ns = kernel_ns, .kernels = kernels, .threads_busy = 0.9};
  };
  Figures fast = short_one(4'000, 1);
  fast.fraction_of_ceiling = 0.7;
  ExpectAll(OnGpu(),
            {{"short", short_one(4'999, 1), Bound::kLaunch, "little longer than an empty one"},
             {"four short ones", short_one(16'000, 4), Bound::kLaunch, "a kernel of 4.00 us"},
             {"short and near the ceiling", fast, Bound::kMemory, ""},
             {"not so short", short_one(5'000, 1), Bound::kUnknown, "neither counters"},
             {"gaps",
              {.kernel_ns = 10'000, .kernels = 4, .gap_ns = 10'001, .dram_throughput = 0.9},
              Bound::kLaunch,
              "the device is idle for 10.0 us of a run, between 4 kernels"},
             {"fewer gaps",
              {.kernel_ns = 10'000, .kernels = 1, .gap_ns = 10'000, .dram_throughput = 0.9},
              Bound::kMemory,
              ""}});
  ExpectAll(OnCpu(), {{"short", short_one(19'999, 1), Bound::kLaunch, "some 20.0 us"},
                      {"not so short", short_one(20'000, 1), Bound::kCompute,
                       "the threads were busy 90.0%"}});
}

TEST(VerdictTest, OfTransfers) {
  const auto moved = [](double transfer_ns) {
    return Figures{.kernel_ns = 1e6,
                   .kernels = 1,
                   .gap_ns = 1e5,
                   .transfer_ns = transfer_ns,
                   .dram_throughput = 0.9};
  };
  ExpectAll(OnGpu(), {{"longer than the rest", moved(1.2e6), Bound::kTransfer,
                       "moving tensors takes 1.20 ms per run, its kernels take 1.00 ms."},
                      {"as long", moved(1.1e6), Bound::kMemory, ""}});
}

TEST(VerdictTest, OfNothing) {
  ExpectAll(OnCpu(), {{"no rows", {}, Bound::kUnknown, "the profile shows no kernel."}});
}

}  // namespace
}  // namespace warpcall::cli
