#include "server/engine/rounds.h"

#include <gtest/gtest.h>

#include "proto/common/check.h"
#include "tests/server/fake_device.h"
#include "tests/server/small_op.h"

namespace warpcall {
namespace {

// `rows` independent rows of the last dimension.
Problem RowsProblem(int64_t rows, int64_t columns, DataType type = DataType::kFloat32) {
  Problem problem;
  const TensorSpec spec{type, {rows, columns}};
  problem.inputs = {spec};
  problem.outputs = {spec};
  problem.attributes = {int64_t{-1}};
  return problem;
}

Op MakeRowsOp(Independence independence) {
  return {.name = "rows",
          .summary = "",
          .input_names = {"x"},
          .attributes = {{"axis", "", int64_t{-1}, {}}},
          .infer_outputs = nullptr,
          .work = nullptr,
          .independence = independence};
}

const Op& RowsOp() {
  static const Op* const op = new Op(MakeRowsOp(Independence::kBeforeAxis));
  return *op;
}

Implementation RowWith(absl::Status (*supports)(const Problem&, const DeviceProperties&)) {
  return {.name = "row",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "",
          .data_types = {},
          .supports = supports};
}

Rounds PlanRounds(const Op* op, const Implementation& row, const Problem& problem,
                  size_t round_bytes) {
  testing::FakeDevice::Control control;
  control.round_bytes = round_bytes;
  return PlanRounds(op, row, problem, testing::FakeDevice(&control, "fake:0"));
}

Rounds PlanRounds(const Problem& problem, size_t round_bytes) {
  return PlanRounds(&RowsOp(), RowWith(SupportsAll), problem, round_bytes);
}

TEST(RoundsTest, RoundsCoverEveryPartOnceAndStartAligned) {
  for (const int64_t rows : {2, 3, 63, 64, 65, 1000, 100'003})
    for (const int64_t columns : {1, 3, 64, 1001})
      for (const DataType type : kDataTypes) {
        const Problem problem = RowsProblem(rows, columns, type);
        const Rounds rounds = PlanRounds(problem, 64 << 10);
        if (rounds.count == 1) continue;
        ASSERT_LE(rounds.count, kRoundsMax);
        int64_t covered = 0;
        for (int64_t round = 0; round < rounds.count; ++round) {
          for (size_t operand : {size_t{0}, size_t{1}}) {
            EXPECT_EQ(rounds.Offset(round, operand) % kOperandAlignmentBytes, 0u);
            EXPECT_EQ(rounds.Offset(round, operand), static_cast<size_t>(covered) *
                                                         problem.inputs[0].bytes() /
                                                         static_cast<size_t>(rows));
          }
          ASSERT_GT(rounds.PartsIn(round), 0);
          covered += rounds.PartsIn(round);
        }
        EXPECT_EQ(covered, rows);
      }
}

TEST(RoundsTest, RoundsHaveAboutTheBytesAskedFor) {
  const Rounds rounds = PlanRounds(RowsProblem(4096, 1024), 4 << 20);  // 32 MiB of operands
  EXPECT_EQ(rounds.count, 8);
  EXPECT_EQ(rounds.parts_per_round, 512);
}

TEST(RoundsTest, VeryLargeJobsGetFewLargeRounds) {
  EXPECT_EQ(PlanRounds(RowsProblem(63 << 8, 1024), 2 << 20).count, 63);
  EXPECT_EQ(PlanRounds(RowsProblem(64 << 8, 1024), 2 << 20).count, kRoundsOfLarge);
  EXPECT_EQ(PlanRounds(RowsProblem(1 << 20, 1024), 2 << 20).count, kRoundsOfLarge);
}

TEST(RoundsTest, EveryRoundHasAllOfASharedInput) {
  static const Op& op = testing::NewSharingOp("sharing");
  // Rows of 64 KiB and 16 KiB beside 16 KiB that all share.
  const Problem problem =
      *MakeProblem(op, {{DataType::kFloat32, {8, 4, 16384}}, {DataType::kFloat32, {4096}}}, {});
  const Rounds rounds = PlanRounds(&op, RowWith(SupportsAll), problem, 640 << 10);
  ASSERT_EQ(rounds.count, 4);
  EXPECT_EQ(rounds.parts, 32);
  for (int64_t round = 0; round < rounds.count; ++round) {
    EXPECT_EQ(rounds.Offset(round, 0), static_cast<size_t>(round) << 19);
    EXPECT_EQ(rounds.Offset(round, 1), 0u);
    EXPECT_EQ(rounds.Offset(round, 2), static_cast<size_t>(round) << 17);
    EXPECT_FALSE(rounds.IsThere(round, 0));
    EXPECT_EQ(rounds.IsThere(round, 1), round > 0);
  }
  const Problem part = TakeParts(op, problem, rounds.PartsIn(0));
  EXPECT_EQ(ToString(part.inputs[0]), "float32[8,16384]");
  EXPECT_EQ(ToString(part.inputs[1]), "float32[4096]");
  EXPECT_EQ(ToString(part.outputs[0]), "float32[8,4096]");
}

TEST(RoundsTest, WhatIsSharedIsNothingToCut) {
  static const Op& op = testing::NewSharingOp("sharing");
  const Problem problem =
      *MakeProblem(op, {{DataType::kFloat32, {64, 16}}, {DataType::kFloat32, {1 << 16}}}, {});
  const size_t split_bytes = problem.inputs[0].bytes() + problem.outputs[0].bytes();
  EXPECT_EQ(PlanRounds(&op, RowWith(SupportsAll), problem, split_bytes / 2).count, 2);
  EXPECT_EQ(PlanRounds(&op, RowWith(SupportsAll), problem, split_bytes / 2 + 1).count, 1);
}

TEST(RoundsTest, SmallJobsAndOpsWithoutPartsAreNotCut) {
  EXPECT_EQ(PlanRounds(RowsProblem(1024, 1024), (4 << 20) + 1).count, 1);
  EXPECT_EQ(PlanRounds(RowsProblem(1024, 1024), 4 << 20).count, 2);
  EXPECT_EQ(PlanRounds(RowsProblem(1, 1 << 24), 4 << 20).count, 1);
  EXPECT_EQ(PlanRounds(RowsProblem(4096, 1024), 0).count, 1);
  EXPECT_EQ(PlanRounds(nullptr, RowWith(SupportsAll), RowsProblem(4096, 1024), 4 << 20).count, 1);
}

TEST(RoundsTest, ARowThatRefusesThePartsGetsTheWhole) {
  const Implementation row = RowWith([](const Problem& problem, const DeviceProperties&) {
    return problem.inputs[0].dims[0] == 4096 ? absl::OkStatus()
                                             : absl::UnimplementedError("takes 4096 rows");
  });
  EXPECT_EQ(PlanRounds(&RowsOp(), row, RowsProblem(4096, 1024), 4 << 20).count, 1);
}

TEST(RoundsDeathTest, HasAsManyRoundsAsItSays) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  const Rounds rounds = {.count = 2, .parts = 3, .parts_per_round = 2, .part_bytes = {8}};
  EXPECT_EQ(rounds.PartsIn(1), 1);
  EXPECT_DEATH(rounds.PartsIn(2), "round < count");
  EXPECT_DEATH(rounds.Offset(1, 1), "operand < part_bytes.size");
}

}  // namespace
}  // namespace warpcall
