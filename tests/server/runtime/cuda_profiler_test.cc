// Checks the GPU profiler's activities against the calls that were made.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "tests/server/runtime/gpu_fixture.h"

namespace warpcall::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Kind = DeviceActivity::Kind;

constexpr size_t kCopyBytes = size_t{16} << 20;
constexpr size_t kSetBytes = size_t{8} << 20;
const RowRequest kIdentity = {"identity", "vector_copy", DataType::kFloat32, {{1 << 24}}};

std::string Describe(const DeviceActivity& activity) {
  return absl::StrCat(activity.start_ns, " +", activity.end_ns - activity.start_ns, " ns, stream ",
                      activity.stream, ", ", activity.bytes, " B, ", activity.grid[0], "x",
                      activity.grid[1], "x", activity.grid[2], " blocks of ", activity.block[0],
                      "x", activity.block[1], "x", activity.block[2], ", ",
                      activity.registers_per_thread, " registers, ", activity.shared_memory_bytes,
                      " B shared: ", activity.name);
}

void Print(const std::vector<DeviceActivity>& activities) {
  for (const DeviceActivity& activity : activities)
    std::printf("  %s\n", Describe(activity).c_str());
  std::fflush(stdout);
}

// A kernel's function without its namespaces and parameters; else the activity's whole name.
std::string WhatRan(const DeviceActivity& activity) {
  if (activity.kind != Kind::kKernel) return activity.name;
  const std::string name = activity.name.substr(0, activity.name.rfind('('));
  return name.substr(name.rfind(':') + 1);
}

class CudaProfilerTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (device_ == nullptr) return;
    auto profiler = device_->CreateProfiler();
    if (absl::IsUnimplemented(profiler.status())) GTEST_SKIP() << profiler.status();
    ASSERT_TRUE(profiler.ok()) << profiler.status();
    profiler_ = *std::move(profiler);
  }

  // Runs `work` on the row's stream in a trace; empty after a failure.
  std::vector<DeviceActivity> TraceOf(LaunchedRow* row, absl::FunctionRef<absl::Status()> work) {
    absl::Status status = profiler_->StartTrace();
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return {};
    status = work();
    if (status.ok()) status = row->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    auto activities = profiler_->StopTrace();
    EXPECT_TRUE(activities.ok()) << activities.status();
    return activities.ok() ? *std::move(activities) : std::vector<DeviceActivity>();
  }

  std::unique_ptr<DeviceProfiler> profiler_;
};

absl::Status LaunchThrice(LaunchedRow* row) {
  for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(row->Launch());
  return absl::OkStatus();
}

// Copy in, kernel, set, copy out, a graph of three kernels that is older than the trace, one that
// is not.
absl::Status KnownSequence(LaunchedRow* row, void* staging, int old_graph) {
  const auto stream = static_cast<cudaStream_t>(row->stream()->native_handle());
  void* const input = const_cast<void*>(row->operands().inputs[0]);
  void* const output = row->operands().outputs[0];
  RETURN_IF_ERROR(cuda::ToStatus(
      cudaMemcpyAsync(input, staging, kCopyBytes, cudaMemcpyHostToDevice, stream), "copying in"));
  RETURN_IF_ERROR(row->Launch());
  RETURN_IF_ERROR(cuda::ToStatus(cudaMemsetAsync(output, 1, kSetBytes, stream), "setting"));
  RETURN_IF_ERROR(cuda::ToStatus(
      cudaMemcpyAsync(staging, output, kCopyBytes, cudaMemcpyDeviceToHost, stream), "copying out"));
  RETURN_IF_ERROR(row->stream()->Replay(old_graph));
  RETURN_IF_ERROR(row->Synchronize());
  ASSIGN_OR_RETURN(const int new_graph,
                   row->stream()->Record([row] { return LaunchThrice(row); }, {}));
  RETURN_IF_ERROR(row->stream()->Replay(new_graph));
  return row->Synchronize();
}

void ExpectKnownSequence(const std::vector<DeviceActivity>& activities, const LaunchShape& shape) {
  std::vector<std::tuple<Kind, int64_t, std::string>> seen;
  for (const DeviceActivity& activity : activities)
    seen.emplace_back(activity.kind, activity.bytes, WhatRan(activity));
  std::vector<std::tuple<Kind, int64_t, std::string>> expected = {
      {Kind::kCopy, kCopyBytes, "copy to device"},
      {Kind::kKernel, 0, "Copy"},
      {Kind::kSet, kSetBytes, "set"},
      {Kind::kCopy, kCopyBytes, "copy to host"}};
  // A recording stamps the time around its launches.
  for (int replay = 0; replay < 2; ++replay)
    for (const char* kernel : {"WriteTime", "Copy", "Copy", "Copy", "WriteReport"})
      expected.emplace_back(Kind::kKernel, 0, kernel);
  ASSERT_THAT(seen, ElementsAreArray(expected));
  constexpr int64_t kRoundingNs = 1000;  // CUPTI converts to the host's time
  DeviceActivity last;
  for (const DeviceActivity& activity : activities) {
    EXPECT_LT(activity.start_ns, activity.end_ns) << Describe(activity);
    // This row's kernel may be launched while the one ahead of it ends, but works after it.
    const bool early = WhatRan(activity) == "Copy" && WhatRan(last) == "Copy";
    EXPECT_GE(activity.start_ns, (early ? last.start_ns : last.end_ns) - kRoundingNs)
        << "one stream, one at a time: " << Describe(activity);
    EXPECT_GE(activity.end_ns, last.end_ns - kRoundingNs) << Describe(activity);
    last = activity;
    EXPECT_EQ(activity.stream, activities[0].stream) << Describe(activity);
    if (WhatRan(activity) != "Copy") continue;
    EXPECT_THAT(activity.name, HasSubstr("identity"));
    EXPECT_THAT(activity.grid, ElementsAreArray(shape.grid));
    EXPECT_THAT(activity.block, ElementsAreArray(shape.block));
    EXPECT_GT(activity.registers_per_thread, 0);
  }
}

TEST_F(CudaProfilerTest, TraceTellsAKnownSequenceInOrderAndInTheHostsTime) {
  const auto row = CreateRow(kIdentity);
  ASSERT_NE(row, nullptr);
  auto staging = device_->AllocateStaging(kCopyBytes);
  ASSERT_TRUE(staging.ok()) << staging.status();
  const auto old_graph = row->stream()->Record([&] { return LaunchThrice(row.get()); }, {});
  ASSERT_TRUE(old_graph.ok()) << old_graph.status();
  const auto shape = row->Shape();
  ASSERT_TRUE(shape.ok()) << shape.status();
  for (const char* turn : {"first", "second"}) {
    SCOPED_TRACE(turn);
    const int64_t before_ns = MonotonicNs();
    const std::vector<DeviceActivity> activities =
        TraceOf(row.get(), [&] { return KnownSequence(row.get(), staging->data(), *old_graph); });
    const int64_t after_ns = MonotonicNs();
    std::printf("%s trace, host from %lld to %lld:\n", turn, static_cast<long long>(before_ns),
                static_cast<long long>(after_ns));
    Print(activities);
    ExpectKnownSequence(activities, *shape);
    ASSERT_FALSE(activities.empty());
    // Converted between clocks by CUPTI, which is good to some microseconds.
    constexpr int64_t kSlackNs = 20000;
    EXPECT_GE(activities.front().start_ns, before_ns - kSlackNs);
    EXPECT_LE(activities.back().end_ns, after_ns + kSlackNs);
    // Outside of the trace: in none.
    ASSERT_TRUE(row->Launch().ok());
    ASSERT_TRUE(row->Synchronize().ok());
  }
}

// A kernel of a millisecond by events, behind another so that the queue never runs dry.
absl::StatusOr<double> NsByEvents(LaunchedRow* row) {
  const auto stream = static_cast<cudaStream_t>(row->stream()->native_handle());
  cudaEvent_t begin, end;
  RETURN_IF_ERROR(cuda::ToStatus(cudaEventCreate(&begin), "creating an event"));
  RETURN_IF_ERROR(cuda::ToStatus(cudaEventCreate(&end), "creating an event"));
  RETURN_IF_ERROR(row->Launch());
  RETURN_IF_ERROR(cuda::ToStatus(cudaEventRecord(begin, stream), "recording an event"));
  RETURN_IF_ERROR(row->Launch());
  RETURN_IF_ERROR(cuda::ToStatus(cudaEventRecord(end, stream), "recording an event"));
  RETURN_IF_ERROR(row->Synchronize());
  float ms = 0;
  RETURN_IF_ERROR(cuda::ToStatus(cudaEventElapsedTime(&ms, begin, end), "reading events"));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 1e6 * static_cast<double>(ms);
}

TEST_F(CudaProfilerTest, DurationsAgreeWithEvents) {
  const auto row = CreateRow({"identity", "vector_copy", DataType::kFloat32, {{1 << 29}}});
  ASSERT_NE(row, nullptr);
  constexpr int kRounds = 9;
  std::vector<double> events;
  const std::vector<DeviceActivity> activities = TraceOf(row.get(), [&] {
    for (int i = 0; i < kRounds; ++i) {
      ASSIGN_OR_RETURN(const double ns, NsByEvents(row.get()));
      events.push_back(ns);
    }
    return absl::OkStatus();
  });
  ASSERT_EQ(activities.size(), 2u * kRounds);
  std::vector<double> ratios;
  for (size_t i = 0; i < events.size(); ++i) {
    const DeviceActivity& timed = activities[2 * i + 1];
    const auto ns = static_cast<double>(timed.end_ns - timed.start_ns);
    ratios.push_back(ns / events[i]);
    std::printf("  trace %9.0f ns, events %9.0f ns, ratio %.4f\n", ns, events[i], ratios.back());
  }
  std::nth_element(ratios.begin(), ratios.begin() + kRounds / 2, ratios.end());
  EXPECT_NEAR(ratios[kRounds / 2], 1, 0.05);
}

bool MayNotCount(const absl::Status& status) {
  return status.code() == absl::StatusCode::kPermissionDenied;
}

TEST_F(CudaProfilerTest, CountsWhatKernelsOfAnotherThreadDidAndLeavesTheirResults) {
  const auto row = CreateRow(kIdentity);
  ASSERT_NE(row, nullptr);
  for (const int launches : {1, 3}) {
    const auto counters = profiler_->Count([&] {
      absl::Status status;
      std::thread([&] {
        for (int i = 0; i < launches; ++i) status.Update(row->Launch());
        status.Update(row->Synchronize());
      }).join();
      return status;
    });
    if (MayNotCount(counters.status())) GTEST_SKIP() << counters.status();
    ASSERT_TRUE(counters.ok()) << counters.status();
    ASSERT_EQ(counters->size(), static_cast<size_t>(launches));
    for (const KernelCounters& kernel : *counters) EXPECT_THAT(kernel.name, HasSubstr("Copy("));
  }
  const size_t bytes = row->problem().outputs[0].bytes();
  std::vector<char> output(bytes);
  ASSERT_EQ(cudaMemcpy(output.data(), row->operands().outputs[0], bytes, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(std::count(output.begin(), output.end(), 0x3C), static_cast<long>(bytes));
  // Tracing works as before.
  EXPECT_EQ(TraceOf(row.get(), [&] { return row->Launch(); }).size(), 1u);
}

TEST_F(CudaProfilerTest, AchievedOccupancyIsBelowTheoretical) {
  for (const RowRequest& request : WatchedRows()) {
    SCOPED_TRACE(request.kernel);
    const auto row = CreateRow(request);
    ASSERT_NE(row, nullptr);
    const auto shape = row->Shape();
    ASSERT_TRUE(shape.ok()) << shape.status();
    const auto counters = profiler_->Count([&] {
      RETURN_IF_ERROR(row->Launch());
      return row->Synchronize();
    });
    if (MayNotCount(counters.status())) GTEST_SKIP() << counters.status();
    ASSERT_TRUE(counters.ok()) << counters.status();
    ASSERT_EQ(counters->size(), static_cast<size_t>(shape->gpu_kernels));
    for (const KernelCounters& kernel : *counters) {
      std::printf("  %-8s %-16s theoretical %.4f achieved %.4f sm %.4f dram %.4f waves %.1f: %s\n",
                  request.kernel.c_str(), std::string(row->name()).c_str(),
                  shape->theoretical_occupancy, kernel.achieved_occupancy, kernel.sm_throughput,
                  kernel.dram_throughput, shape->waves, kernel.name.c_str());
      EXPECT_GT(kernel.achieved_occupancy, 0.1 * shape->theoretical_occupancy);
      EXPECT_LT(kernel.achieved_occupancy, shape->theoretical_occupancy + 0.02);
      EXPECT_GT(kernel.sm_throughput, 0.01);
      EXPECT_GT(kernel.dram_throughput, 0.01);
      EXPECT_LE(std::max(kernel.sm_throughput, kernel.dram_throughput), 1.05);
    }
  }
}

}  // namespace
}  // namespace warpcall::testing
