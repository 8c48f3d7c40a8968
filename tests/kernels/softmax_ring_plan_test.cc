// Plans of ring_per_columns for problems and devices, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/plan.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::softmax {
namespace {

using ::testing::HasSubstr;
using testing::MadeUpH200;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};

// softmax over the middle dimension.
Problem Columns(DataType type, const Dims& dims) {
  return *MakeProblem(SoftmaxOp(), {{type, dims}}, {{"axis", int64_t{1}}});
}

absl::Status Supports(DataType type, const Dims& dims) {
  return RingPerColumnsRow().supports(Columns(type, dims), MadeUpH200());
}

// The first of softmax's rows for GPUs that takes them.
std::string FirstRow(DataType type, const Dims& dims) {
  for (const Implementation& row : SoftmaxCudaRows())
    if (row.supports(Columns(type, dims), MadeUpH200()).ok()) return row.name;
  return "";
}

TEST(SoftmaxRingPlanTest, TakesTheAxesForWhichItIsFasterThanClustersInRegisters) {
  constexpr int64_t kInner = 1 << 14;
  for (const DataType type : kTypes) {
    SCOPED_TRACE(DataTypeName(type));
    constexpr int64_t kShortest = 4096;
    EXPECT_EQ(FirstRow(type, {1, kShortest - 1, kInner}), "cluster_per_columns");
    EXPECT_EQ(FirstRow(type, {1, kShortest, kInner}), "ring_per_columns");
    EXPECT_EQ(FirstRow(type, {1, 16384, 4096}), "ring_per_columns");
    EXPECT_EQ(FirstRow(type, {1, 40960, kInner}), "ring_per_columns");
    EXPECT_EQ(FirstRow(type, {1, 40961, kInner}), "thread_per_column");
    for (const int64_t n : {kShortest - 1, int64_t{40961}}) {
      const absl::Status status = Supports(type, {1, n, kInner});
      EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("an axis of ", kShortest, " to 40960 elements")));
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("it has ", n)));
    }
  }
}

// Two for each of the clusters that 132 multiprocessors may hold: 16 panels for clusters of 16
// blocks, 66 for those of 4.
TEST(SoftmaxRingPlanTest, WantsColumnsForTwoPanelsACluster) {
  for (const DataType type : kTypes) {
    SCOPED_TRACE(DataTypeName(type));
    EXPECT_TRUE(Supports(type, {1, 16384, 488}).ok());
    EXPECT_TRUE(Supports(type, {2, 16384, 232}).ok());
    EXPECT_FALSE(Supports(type, {2, 16384, 224}).ok());
    const absl::Status status = Supports(type, {1, 16384, 480});
    EXPECT_THAT(std::string(status.message()), HasSubstr("for 16 panels of 32; here they are 15"));
  }
  EXPECT_TRUE(Supports(DataType::kBFloat16, {1, 4096, 2088}).ok());
  EXPECT_FALSE(Supports(DataType::kBFloat16, {1, 4096, 2080}).ok());
  // Narrower panels.
  EXPECT_TRUE(Supports(DataType::kFloat32, {1, 20481, 244}).ok());
  EXPECT_FALSE(Supports(DataType::kFloat32, {1, 20481, 240}).ok());
}

TEST(SoftmaxRingPlanTest, RefusesColumnsThatAreNoVectorsAndRows) {
  EXPECT_THAT(std::string(Supports(DataType::kBFloat16, {1, 16384, 4100}).message()),
              HasSubstr("a multiple of 8 apart; here they are 4100"));
  EXPECT_TRUE(Supports(DataType::kFloat32, {1, 16384, 4100}).ok());
  EXPECT_FALSE(Supports(DataType::kFloat32, {1, 16384, 4098}).ok());
  EXPECT_FALSE(Supports(DataType::kFloat32, {4096, 16384, 1}).ok());
}

TEST(SoftmaxRingPlanTest, RefusesDevicesWithoutClustersOrRoomForTheRing) {
  const Problem problem = Columns(DataType::kBFloat16, {1, 16384, 4096});
  DeviceProperties device = MadeUpH200();
  device.architecture = 89;
  EXPECT_TRUE(absl::IsUnimplemented(RingPerColumnsRow().supports(problem, device)));
  device = MadeUpH200();
  device.shared_memory_per_block_bytes = 99 << 10;
  EXPECT_TRUE(absl::IsUnimplemented(RingPerColumnsRow().supports(problem, device)));
}

TEST(SoftmaxRingPlanTest, PlansNeedNoWorkspaceAndMayBeReplayed) {
  for (const DataType type : kTypes) {
    for (const int64_t n : {4096, 16384}) {  // panels of 64 and of 32 columns
      const auto plan = RingPerColumnsRow().plan(Columns(type, {1, n, (int64_t{1} << 26) / n}),
                                                 {.device = &MadeUpH200()});
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ((*plan)->traits().variant, n == 4096 ? 0 : 1);
      EXPECT_EQ((*plan)->traits().workspace_bytes, 0u);
      EXPECT_TRUE((*plan)->traits().may_be_replayed);
    }
  }
}

}  // namespace
}  // namespace warpcall::softmax
