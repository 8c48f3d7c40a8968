#include "server/self_test/trial_runner.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "tests/server/fake_device.h"

namespace warpcall::self_test {
namespace {

// Copies the first half only.
absl::Status CopyHalf(const Problem& problem, const Operands& operands, const LaunchContext&) {
  std::memcpy(operands.outputs[0], operands.inputs[0], problem.outputs[0].bytes() / 2);
  return absl::OkStatus();
}

// Leaves the right answer in the output, as the timing of candidates does.
absl::StatusOr<PlanPtr> PlanByWritingAll(const Problem& problem, const PlanContext& context) {
  const Operands& operands = *context.tryout->operands;
  std::memcpy(operands.outputs[0], operands.inputs[0], problem.outputs[0].bytes());
  return PlanBy(CopyHalf)(problem, context);
}

class FakeGpu final : public testing::FakeDevice {
 public:
  explicit FakeGpu(Control* control) : FakeDevice(control, "cuda:0") {
    properties_.name = "cuda:0";
    properties_.kind = DeviceKind::kCuda;
  }
  const DeviceProperties& properties() const override { return properties_; }

 private:
  DeviceProperties properties_;
};

struct Memory {
  alignas(kOperandAlignmentBytes) float x[4] = {1, 2, 3, 4};
  alignas(kOperandAlignmentBytes) float y[4] = {9, 9, 9, 9};
};

// Expects the runner to show that a row wrote only half of its output.
void ExpectHalf(Device* device, decltype(Implementation::plan) plan) {
  Implementation row = IdentityCpuRows().front();
  row.plan = std::move(plan);
  const absl::StatusOr<Problem> problem =
      MakeProblem(IdentityOp(), {{DataType::kFloat32, {4}}}, {});
  const auto runner = TrialRunner::Create(device);
  ASSERT_TRUE(runner.ok()) << runner.status();
  Memory memory;
  Operands host;
  host.inputs = {memory.x};
  host.outputs = {memory.y};
  ASSERT_TRUE((*runner)->Run(row, *problem, host).ok());
  EXPECT_EQ(memory.y[0], 1);
  EXPECT_EQ(memory.y[1], 2);
  EXPECT_EQ(memory.y[2], 9);
  EXPECT_EQ(memory.y[3], 9);
}

TEST(TrialRunnerTest, WhatARowDoesNotWriteStaysAsItWas) {
  testing::FakeDevice::Control control;
  testing::FakeDevice cpu(&control, "cpu");
  ExpectHalf(&cpu, PlanBy(CopyHalf));
  FakeGpu gpu(&control);
  ExpectHalf(&gpu, PlanBy(CopyHalf));
  ExpectHalf(&gpu, PlanByWritingAll);
  EXPECT_EQ(control.memory_used_bytes, 0);
}

TEST(TrialRunnerTest, TimesAreThoseOfTheThreePhases) {
  testing::FakeDevice::Control control;
  FakeGpu gpu(&control);
  const auto runner = TrialRunner::Create(&gpu);
  ASSERT_TRUE(runner.ok()) << runner.status();
  Memory memory;
  Operands host;
  host.inputs = {memory.x};
  host.outputs = {memory.y};
  const absl::StatusOr<Problem> problem =
      MakeProblem(IdentityOp(), {{DataType::kFloat32, {4}}}, {});
  Implementation row = IdentityCpuRows().front();
  row.plan = PlanBy(CopyHalf);
  ASSERT_TRUE((*runner)->Run(row, *problem, host).ok());
  EXPECT_EQ((*runner)->times().h2d_ns, 100);
  EXPECT_EQ((*runner)->times().kernel_ns, 200);
  EXPECT_EQ((*runner)->times().d2h_ns, 300);
}

}  // namespace
}  // namespace warpcall::self_test
