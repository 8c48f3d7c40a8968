#include "server/judge/time_trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/registry.h"
#include "tests/server/inspect/timed_device.h"

namespace warpcall::judge {
namespace {

using ::testing::HasSubstr;

TEST(FloorTest, IsTheLongerOfMemoryAndArithmetic) {
  DeviceProperties device;
  device.pin_bytes_per_second = 4e12;
  device.float16_flops_per_second = 1e15;
  EXPECT_DOUBLE_EQ(FloorNs({.bytes = 4'000'000, .flops = 1}, DataType::kFloat16, true, device),
                   1000);
  EXPECT_DOUBLE_EQ(FloorNs({.bytes = 1, .flops = 2'000'000'000}, DataType::kBFloat16, true, device),
                   2000);
  EXPECT_DOUBLE_EQ(FloorNs({.bytes = 1, .flops = 2'000'000'000}, DataType::kFloat32, true, device),
                   6000);
}

TEST(FloorTest, OperandsInACacheNeedNoPins) {
  DeviceProperties device;
  device.pin_bytes_per_second = 4e12;
  EXPECT_EQ(FloorNs({.bytes = 4'000'000, .flops = 1}, DataType::kFloat16, false, device), 0);
}

TEST(FloorTest, UnknownLimitsAllowAnything) {
  EXPECT_EQ(FloorNs({.bytes = 4'000'000, .flops = 1'000'000}, DataType::kFloat32, true, {}), 0);
}

// A GPU whose memory has a pin for a terabyte a second, and a clock that launches move.
DeviceProperties Gpu() {
  DeviceProperties gpu;
  gpu.name = "timed:0";
  gpu.kind = DeviceKind::kCuda;
  gpu.memory_bytes = int64_t{1} << 30;
  gpu.l2_bytes = int64_t{1} << 20;
  gpu.pin_bytes_per_second = 1e12;
  return gpu;
}

class TimeTrialTest : public ::testing::Test {
 protected:
  TimeTrialTest() {
    AddCpuKernels(&registry_);
    manifest_.name = "mine";
    manifest_.op = (*registry_.Find("gelu"))->op;
    manifest_.types = {DataType::kFloat32};
    problem_ = *MakeProblem(*manifest_.op, {{DataType::kFloat32, {64, 256}}}, {});
  }

  // Of a kernel whose launches take so long, and whose output is wrong by a factor.
  TimeResult Time(int64_t launch_ns, float factor = 1) {
    const PlanPtr plan =
        NewPlan({}, [=, this](const Operands& operands, const LaunchContext& context) {
          const auto* const x = static_cast<const float*>(operands.inputs[0]);
          auto* const y = static_cast<float*>(operands.outputs[0]);
          for (int64_t i = 0; i < problem_.inputs[0].elements(); ++i) {
            const double v = x[i];
            y[i] = factor *
                   static_cast<float>(
                       0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
          }
          static_cast<testing::TimedDevice*>(context.stream)->Pass(launch_ns);
          return absl::OkStatus();
        });
    const auto result =
        RunTimeTrial({.registry = &registry_,
                      .device = &device_,
                      .clock = [this] { return device_.now_ns(); },
                      .pool = &pool_},
                     {.manifest = &manifest_, .problem = &problem_, .plan = plan, .iterations = 5});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : TimeResult();
  }

  Registry registry_;
  testing::TimedDevice device_{Gpu()};
  cpu::ThreadPool pool_{1};
  manifest::KernelManifest manifest_;
  Problem problem_;
};

TEST_F(TimeTrialTest, AKernelThatTakesItsTimePasses) {
  const TimeResult result = Time(500);
  EXPECT_EQ(result.finding, Finding::kPassed) << result.detail;
  EXPECT_DOUBLE_EQ(result.floor_ns, 131.072);
  EXPECT_TRUE(result.cold);
  ASSERT_EQ(result.results.size(), 1u);
  EXPECT_EQ(result.results[0].implementation(), absl::StrCat("push:", manifest_.name));
  EXPECT_DOUBLE_EQ(result.results[0].median_ns(), 500);
  EXPECT_EQ(result.speedup, 0);  // nothing else runs there
}

TEST_F(TimeTrialTest, AKernelFasterThanTheDeviceIsNotBelieved) {
  EXPECT_EQ(Time(118).finding, Finding::kPassed);
  const TimeResult result = Time(117);
  EXPECT_EQ(result.finding, Finding::kBelowFloor);
  EXPECT_THAT(result.detail, HasSubstr("a launch took 117 ns; no kernel on this device takes less "
                                       "than 131"));
}

TEST_F(TimeTrialTest, AWrongOutputIsWorseThanAFastOne) {
  EXPECT_EQ(Time(10, 1.5f).finding, Finding::kIncorrect);
}

TEST_F(TimeTrialTest, OneSetOfOperandsIsNotTimed) {
  problem_ = *MakeProblem(*manifest_.op, {{DataType::kFloat32, {12 << 20}}}, {});
  const TimeResult result = Time(500);
  EXPECT_EQ(result.finding, Finding::kPassed);
  ASSERT_EQ(result.results.size(), 1u);
  EXPECT_THAT(result.results[0].error(), HasSubstr("not timed: 2 sets of operands"));
}

}  // namespace
}  // namespace warpcall::judge
