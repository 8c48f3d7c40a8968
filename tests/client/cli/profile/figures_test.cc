#include "client/cli/profile/figures.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace warpcall::cli {
namespace {

using client::ProfileRow;

ProfileRow Row(std::string kind, std::string name, int64_t calls, int64_t total_ns) {
  ProfileRow row;
  row.set_kind(std::move(kind));
  row.set_name(std::move(name));
  row.set_calls(calls);
  row.set_total_ns(total_ns);
  row.set_achieved_occupancy(-1);
  row.set_sm_throughput(-1);
  row.set_dram_throughput(-1);
  return row;
}

// Two runs that move 8 MB each at least, in a millisecond of kernels, on a device that copies 16
// GB/s.
Profiled TwoRuns(const std::string& kind) {
  Profiled profiled;
  profiled.report.set_iterations(2);
  for (const ProfileRow& row :
       {Row("kernel", "row", 2, 2'000'000), Row("host", "run", 2, 4'000'000),
        Row("host", "enqueue", 2, 3'000'000)})
    *profiled.report.add_rows() = row;
  profiled.plan.mutable_launch()->set_bytes_moved(8'000'000);
  profiled.plan.mutable_launch()->set_flops(2'000'000);
  profiled.device.kind = kind;
  profiled.device.multiprocessors = 4;
  profiled.device.measured_bandwidth_bytes_per_second = 16e9;
  return profiled;
}

TEST(FiguresTest, AreOfOneRun) {
  const Figures figures = FiguresOf(TwoRuns("cpu"));
  EXPECT_DOUBLE_EQ(figures.kernel_ns, 1e6);
  EXPECT_DOUBLE_EQ(figures.kernels, 1);
  EXPECT_DOUBLE_EQ(figures.run_ns, 2e6);
  EXPECT_DOUBLE_EQ(figures.bytes_per_second, 8e9);
  EXPECT_DOUBLE_EQ(figures.flops_per_second, 2e9);
  EXPECT_DOUBLE_EQ(figures.fraction_of_ceiling, 0.5);
  EXPECT_DOUBLE_EQ(figures.passes_max, 2);
  EXPECT_DOUBLE_EQ(figures.transfer_ns, 0);
  for (const double unknown :
       {figures.passes, figures.counted_bytes, figures.threads_busy, figures.threads_waiting,
        figures.achieved_occupancy, figures.sm_throughput, figures.dram_throughput,
        figures.instructions, figures.cycles})
    EXPECT_EQ(unknown, -1);
}

TEST(FiguresTest, TransfersAreTheDevicesCopiesAndTheHostsOfInputs) {
  Profiled profiled = TwoRuns("cuda");
  *profiled.report.add_rows() = Row("copy", "copy to device", 4, 600'000);
  *profiled.report.add_rows() = Row("host", "copy_in", 2, 400'000);
  *profiled.report.add_rows() = Row("gap", "nothing to do", 2, 200'000);
  const Figures figures = FiguresOf(profiled);
  EXPECT_DOUBLE_EQ(figures.transfer_ns, 500'000);
  EXPECT_DOUBLE_EQ(figures.gap_ns, 100'000);
}

TEST(FiguresTest, CountersOfKernelsAreWeightedByTheirTime) {
  Profiled profiled = TwoRuns("cuda");
  profiled.report.mutable_rows(0)->set_dram_throughput(0.9);
  ProfileRow other = Row("kernel", "other", 2, 6'000'000);
  other.set_dram_throughput(0.5);
  *profiled.report.add_rows() = other;
  *profiled.report.add_rows() = Row("kernel", "without", 2, 8'000'000);
  const Figures figures = FiguresOf(profiled);
  EXPECT_DOUBLE_EQ(figures.dram_throughput, 0.6);
  EXPECT_EQ(figures.sm_throughput, -1);
  // 60 % of the peak for 8 ms; 16 GB/s are nine tenths of the peak.
  EXPECT_NEAR(figures.counted_bytes, 0.6 * 16e9 / 0.9 * 8e-3, 1);
}

TEST(FiguresTest, ThreadsAndCountersOfTheCpu) {
  Profiled profiled = TwoRuns("cpu");
  auto& rows = *profiled.report.mutable_rows();
  // 4 threads for 2 ms each run.
  rows.Add(Row("thread", "cpu thread 0", 2, 4'000'000));
  rows.Add(Row("thread", "cpu thread 1", 2, 2'000'000));
  rows.Add(Row("thread", "waiting for a core", 2, 1'600'000));
  rows.Add(Row("counter", "instructions", 6'000'000, 0));
  rows.Add(Row("counter", "cycles", 3'000'000, 0));
  rows.Add(Row("counter", "cache misses", 375'000, 0));
  rows[rows.size() - 1].set_bytes(24'000'000);
  const Figures figures = FiguresOf(profiled);
  EXPECT_DOUBLE_EQ(figures.threads_busy, 3.0 / 8);
  EXPECT_DOUBLE_EQ(figures.threads_waiting, 0.8 / 8);
  EXPECT_DOUBLE_EQ(figures.instructions, 3e6);
  EXPECT_DOUBLE_EQ(figures.cycles, 1.5e6);
  EXPECT_DOUBLE_EQ(figures.counted_bytes, 12e6);
  EXPECT_DOUBLE_EQ(figures.passes, 1.5);
  // Waits that began before the runs count only as long as the runs.
  rows[5].set_total_ns(99'000'000);
  EXPECT_DOUBLE_EQ(FiguresOf(profiled).threads_waiting, 5.0 / 8);
}

TEST(FiguresTest, WhatTheServerDoesNotTellIsUnknown) {
  Profiled profiled = TwoRuns("cpu");
  profiled.plan_missing = "Describe: not there";
  profiled.device.measured_bandwidth_bytes_per_second = 0;
  const Figures figures = FiguresOf(profiled);
  for (const double unknown : {figures.least_bytes, figures.flops, figures.ceiling_bytes_per_second,
                               figures.bytes_per_second, figures.flops_per_second,
                               figures.fraction_of_ceiling, figures.passes_max})
    EXPECT_EQ(unknown, -1);
  profiled.report.set_iterations(0);
  EXPECT_EQ(FiguresOf(profiled).kernel_ns, 0);
}

}  // namespace
}  // namespace warpcall::cli
