// Trials of rows on the machine at hand.
#include "kernels/check/self_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "tests/kernels/run_row.h"

namespace warpcall::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

cpu::ThreadPool& Pool() {
  static auto* const pool = new cpu::ThreadPool(2);
  return *pool;
}

absl::Status RunHere(const Implementation& row, const Problem& problem, const Operands& host) {
  return RunOnCpu({.pool = &Pool()}, row, problem, host);
}

SelfCheck MakeCheck(const Registry& registry, CheckDepth depth = CheckDepth::kQuick,
                    RowRunner run = RunHere) {
  return SelfCheck(registry, TestDeviceProperties(),
                   {.depth = depth, .run = std::move(run), .pool = &Pool()});
}

TEST(SelfCheckTest, EveryRowOfTheCpuPassesInEachOfItsTypes) {
  SelfCheck check = MakeCheck(CpuKernels());
  for (const Row& row : CpuKernels().rows()) {
    SCOPED_TRACE(
        absl::StrCat(CpuKernels().kernels()[row.kernel].op->name, " ", row.implementation.name));
    const CheckResult result = check.Check(row);
    EXPECT_TRUE(result.status.ok()) << result.status;
    // The processor decides which 16-bit types a library takes.
    if (row.implementation.family == Family::kLibrary)
      EXPECT_THAT(result.data_types, ::testing::Contains(DataType::kFloat32));
    else
      EXPECT_EQ(result.data_types, row.implementation.data_types);
  }
}

// Few and small ones, or every server would start slowly.
TEST(SelfCheckTest, QuickCasesAreFewAndSmallAndOfEveryKind) {
  for (const Kernel& kernel : CpuKernels().kernels()) {
    const OpCases cases = kernel.op->cases();
    EXPECT_GT(cases.quick.size(), 0u) << kernel.op->name;
    EXPECT_LE(cases.quick.size(), 10u) << kernel.op->name;
    for (const Case& quick : cases.quick) {
      std::vector<TensorSpec> specs;
      for (const Dims& dims : quick.shapes) specs.push_back({DataType::kFloat32, dims});
      const absl::StatusOr<Problem> problem = MakeProblem(*kernel.op, specs, quick.attributes);
      ASSERT_TRUE(problem.ok()) << quick.name << ": " << problem.status();
      EXPECT_LE(kernel.op->work(*problem).flops, 1'000'000) << quick.name;
      EXPECT_LE(kernel.op->work(*problem).bytes, 1 << 17) << quick.name;
    }
  }
  const OpCases matmul = (*CpuKernels().Find("matmul"))->op->cases();
  std::set<std::string> shapes;
  for (const Case& quick : matmul.quick) shapes.insert(quick.name);
  EXPECT_EQ(shapes.count("a_b_64x64_by_64x64_normal"), 1u);  // AMX's tiles
  EXPECT_EQ(shapes.count("at_bt_64x64_by_64x64_normal"), 1u);
}

// A row of gelu in place of the real one, beside the reference.
class OneRow {
 public:
  explicit OneRow(LaunchFunction launch,
                  decltype(Implementation::supports) supports = SupportsAll) {
    Implementation row = gelu::Float64Row();
    row.name = "tried";
    row.family = Family::kCpu;
    row.plan = PlanBy(launch);
    row.supports = supports;
    registry_.Add(GeluOp(), {row, gelu::Float64Row()});
  }
  CheckResult Check(CheckDepth depth = CheckDepth::kQuick) {
    return MakeCheck(registry_, depth).Check(registry_.rows()[0]);
  }

 private:
  Registry registry_;
};

absl::Status Right(const Problem& problem, const Operands& operands, const LaunchContext& context) {
  const auto plan = gelu::Float64Row().plan(problem, {.device = &TestDeviceProperties()});
  return plan.ok() ? (*plan)->Enqueue(operands, context) : plan.status();
}

TEST(SelfCheckTest, OneWrongElementIsNamed) {
  const CheckResult result =
      OneRow([](const Problem& problem, const Operands& operands, const LaunchContext& context) {
        const absl::Status status = Right(problem, operands, context);
        SetValue(operands.outputs[0], problem.outputs[0].data_type, 1008, 77);
        return status;
      }).Check();
  EXPECT_THAT(std::string(result.status.message()),
              AllOf(StartsWith("wrong: element 1008 of float32[1009] is 77"),
                    HasSubstr("(float32, case quick tanh")));
}

TEST(SelfCheckTest, AnOutputThatIsNotWrittenIsWrong) {
  const CheckResult result = OneRow([](const Problem&, const Operands&, const LaunchContext&) {
                               return absl::OkStatus();
                             }).Check();
  EXPECT_THAT(std::string(result.status.message()), StartsWith("wrong: element 0 of"));
}

TEST(SelfCheckTest, WhatALaunchReturnsIsTold) {
  const CheckResult result = OneRow([](const Problem&, const Operands&, const LaunchContext&) {
                               return absl::InternalError("no such kernel image");
                             }).Check();
  EXPECT_THAT(std::string(result.status.message()),
              AllOf(StartsWith("no such kernel image"), HasSubstr("float32")));
}

TEST(SelfCheckTest, ARowThatTakesNothingSaysWhy) {
  const CheckResult result =
      OneRow(Right, [](const Problem&, const DeviceProperties&) -> absl::Status {
        return absl::UnimplementedError("could not load libnothing.so");
      }).Check();
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(result.status.message(), "could not load libnothing.so");
  EXPECT_EQ(result.cases, 0);
}

TEST(SelfCheckTest, TypesThatARowRefusesAreLeftOut) {
  const CheckResult result =
      OneRow(Right, [](const Problem& problem, const DeviceProperties&) -> absl::Status {
        if (problem.inputs[0].data_type != DataType::kFloat16) return absl::OkStatus();
        return absl::UnimplementedError("no half");
      }).Check();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(result.data_types, ElementsAre(DataType::kFloat32, DataType::kBFloat16));
}

absl::Status OnlyFourDimensions(const Problem& problem, const DeviceProperties&) {
  if (problem.inputs[0].dims.size() == 4) return absl::OkStatus();
  return absl::UnimplementedError("needs rank 4");
}

TEST(SelfCheckTest, ARowThatTakesNoQuickCaseIsTriedOnAnother) {
  const CheckResult right = OneRow(Right, OnlyFourDimensions).Check();
  EXPECT_TRUE(right.status.ok()) << right.status;
  EXPECT_EQ(right.cases, 3);  // one of each type
  const CheckResult wrong =
      OneRow([](const Problem&, const Operands&, const LaunchContext&) { return absl::OkStatus(); },
             OnlyFourDimensions)
          .Check();
  EXPECT_THAT(std::string(wrong.status.message()), HasSubstr("float32[3,5,7,11]"));
}

TEST(SelfCheckTest, FullTakesEveryCase) {
  const LaunchFunction wrong_when_large = [](const Problem& problem, const Operands& operands,
                                             const LaunchContext& context) {
    const absl::Status status = Right(problem, operands, context);
    if (problem.outputs[0].elements() == 100003)
      SetValue(operands.outputs[0], problem.outputs[0].data_type, 100002, 77);
    return status;
  };
  EXPECT_TRUE(OneRow(wrong_when_large).Check().status.ok());
  const CheckResult full = OneRow(wrong_when_large).Check(CheckDepth::kFull);
  EXPECT_THAT(std::string(full.status.message()), StartsWith("wrong: element 100002"));
}

}  // namespace
}  // namespace warpcall::testing
