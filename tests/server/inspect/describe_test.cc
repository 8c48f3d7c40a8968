#include "server/inspect/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/small_op.h"

namespace warpcall::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A plan with something of everything.
class ToldPlan final : public Plan {
 public:
  ToldPlan() : Plan({.workspace_bytes = 4096}) {}
  absl::Status Enqueue(const Operands&, const LaunchContext&) const override {
    return absl::InternalError("nothing may run");
  }
  std::vector<SourceFile> Sources() const override {
    return {{"kernels/identity/identity_loop.cc", "cpp", "a second time"},
            {"made.cu", "cuda", "__global__ void made();"}};
  }

 private:
  absl::StatusOr<LaunchShape> AskShape() const override {
    return LaunchShape{.grid = {132, 2, 1},
                       .block = {256, 1, 1},
                       .theoretical_occupancy = 0.5,
                       .waves = 1.5,
                       .gpu_kernels = 2,
                       .registers_per_thread = 40,
                       .shared_memory_bytes = 2048,
                       .local_memory_bytes = 16};
  }
};

Implementation RowThatPlans(decltype(Implementation::plan) plan) {
  return {.name = "told",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "",
          .data_types = {DataType::kFloat32},
          .supports = SupportsAll,
          .plan = std::move(plan)};
}

TEST(DescribeTest, TellsAPlanWithoutRunningIt) {
  Implementation row =
      RowThatPlans([](const Problem&, const PlanContext& context) -> absl::StatusOr<PlanPtr> {
        EXPECT_EQ(context.tryout, nullptr);
        EXPECT_EQ(context.variant, kRowsChoice);
        EXPECT_EQ(context.device->name, "cpu");
        return std::make_shared<const ToldPlan>();
      });
  row.file = "kernels/identity/identity_loop.cc";
  CpuDevice device(1);
  static const Op& op = testing::NewSmallOp("small", "");
  const Problem problem = *MakeProblem(op, {{DataType::kFloat32, {3}}}, {});
  const auto description = DescribePlan(op, row, problem, &device);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->launch().variant(), "told");
  EXPECT_EQ(description->family(), "cpu");
  EXPECT_EQ(description->device(), "cpu");
  EXPECT_EQ(description->launch().bytes_moved(), 24);
  EXPECT_EQ(description->launch().flops(), 3);
  EXPECT_EQ(description->launch().theoretical_occupancy(), 0.5);
  EXPECT_EQ(description->launch().waves(), 1.5);
  EXPECT_EQ(description->launch().gpu_kernels(), 2);
  EXPECT_EQ(description->grid(), "132x2x1");
  EXPECT_EQ(description->block(), "256x1x1");
  EXPECT_EQ(description->registers_per_thread(), 40);
  EXPECT_EQ(description->local_memory_bytes(), 16);
  EXPECT_EQ(description->shared_memory_bytes(), 2048);
  EXPECT_EQ(description->workspace_bytes(), 4096);
  EXPECT_EQ(description->tolerance(), ToleranceOf(op, row, DataType::kFloat32));
  const int files = description->files_size();
  ASSERT_GE(files, 2);
  EXPECT_EQ(description->files(0).name(), row.file);
  EXPECT_NE(description->files(0).text(), "a second time");
  EXPECT_EQ(description->files(files - 1).name(), "made.cu");
  for (int i = 1; i < files; ++i) EXPECT_NE(description->files(i).name(), row.file);
}

TEST(DescribeTest, ARowThatDoesNotPlanSaysWhy) {
  const Implementation row =
      RowThatPlans([](const Problem&, const PlanContext&) -> absl::StatusOr<PlanPtr> {
        return absl::UnimplementedError("rows of 7 elements; the limit is 6");
      });
  static const Op& op = testing::NewSmallOp("small", "");
  CpuDevice device(1);
  EXPECT_EQ(DescribePlan(op, row, {}, &device).status(),
            absl::UnimplementedError("rows of 7 elements; the limit is 6"));
}

OpCases SomeCases() {
  OpCases cases{.cases = {}, .errors = nullptr, .tolerance = "half a unit", .allowances = {}};
  cases.allowances = {{.row = "told",
                       .reason = "The library rounds in between.",
                       .data_types = {DataType::kFloat16},
                       .arithmetic = 1.5,
                       .roundings = 2,
                       .zero_below = 1e-30,
                       .flushes_subnormal_inputs = true}};
  return cases;
}

TEST(DescribeTest, ToleranceIsTheOpsAndWhatTheRowIsAllowedBeyond) {
  static const Op& small = testing::NewSmallOp("small", "");
  Op op = small;
  const Implementation row = RowThatPlans(nullptr);
  EXPECT_THAT(ToleranceOf(op, row, DataType::kFloat32), HasSubstr("none"));
  op.cases = SomeCases;
  EXPECT_EQ(ToleranceOf(op, row, DataType::kFloat32), "half a unit");
  EXPECT_EQ(ToleranceOf(op, row, DataType::kFloat16),
            "half a unit; of told: its arithmetic may be off by 1.5 times as much, its result may "
            "be rounded 2 times, values smaller than 1e-30 may be 0, subnormal inputs may count "
            "as 0. The library rounds in between.");
  Implementation other = row;
  other.name = "other";
  EXPECT_THAT(ToleranceOf(op, other, DataType::kFloat16), Not(HasSubstr("told")));
}

}  // namespace
}  // namespace warpcall::inspect
