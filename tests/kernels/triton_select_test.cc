#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/triton/manifest.h"
#include "kernels/triton/select.h"

namespace warpcall::triton {
namespace {

using ::testing::HasSubstr;

DeviceProperties DeviceOf(int32_t architecture) {
  DeviceProperties device;
  device.name = "cuda:0";
  device.kind = DeviceKind::kCuda;
  device.shared_memory_per_block_bytes = 227 << 10;
  device.architecture = architecture;
  device.compute_capability =
      std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
  return device;
}

using manifest::IntegerExpression;

bool IsName(absl::string_view name) {
  return name == "rows" || name == "n" || name == "COLUMNS" || name == "ROWS";
}

// A kernel like softmax's: `rows` rows of up to `columns` a block.
CompiledKernel KernelOf(int64_t columns, int64_t rows, int64_t divisor) {
  CompiledKernel kernel;
  kernel.tile = std::to_string(columns) + "x" + std::to_string(rows);
  kernel.variant = kernel.tile + (divisor == 1 ? "" : " by 16");
  kernel.arguments = {{"x", Argument::Type::kPointer, 16},
                      {"rows", Argument::Type::kInt64, 1},
                      {"n", Argument::Type::kInt32, divisor}};
  kernel.constants = {{"COLUMNS", columns}, {"ROWS", rows}};
  kernel.grid = {*IntegerExpression::Parse("ceil(rows / ROWS)", IsName)};
  kernel.requirements = {*IntegerExpression::ParseCondition("n <= COLUMNS", IsName)};
  for (const int32_t architecture : {80, 90}) {
    Image image;
    image.architecture = architecture;
    image.threads = 128;
    kernel.images.push_back(std::move(image));
  }
  return kernel;
}

KernelSet Rows() {
  KernelSet set;
  set.op = "softmax";
  for (const int64_t divisor : {16, 1})
    for (const int64_t columns : {64, 256, 1024})
      set.kernels.push_back(KernelOf(columns, 1024 / columns, divisor));
  set.choices = {{{4096, 64}, "64x16"}, {{4096, 256}, "256x4"}, {{4096, 1024}, "1024x1"}};
  return set;
}

Order OrderOf(int64_t rows, int64_t n) {
  return {.traits = {}, .integers = {{"rows", rows}, {"n", n}}, .sizes = {rows, n}};
}

std::string ChosenOf(const KernelSet& set, const Order& order, int32_t architecture = 90) {
  const auto chosen = Choose(set, order, DeviceOf(architecture));
  if (!chosen.ok()) return std::string(chosen.status().message());
  return set.kernels[static_cast<size_t>(*chosen)].variant;
}

TEST(SelectTest, TakesTheTileThatIsNearestAmongThoseWithRoom) {
  const KernelSet set = Rows();
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 16)), "64x16 by 16");
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 64)), "64x16 by 16");
  // 80 is nearer to 64, which has no room for it.
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 80)), "256x4 by 16");
  EXPECT_EQ(ChosenOf(set, OrderOf(1, 1024)), "1024x1 by 16");
}

TEST(SelectTest, WhatDoesNotDivideTakesTheGeneralKernel) {
  const KernelSet set = Rows();
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 63)), "64x16");
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 1023)), "1024x1");
  const auto blocks = BlocksFor(set.kernels[0], OrderOf(4096, 63), DeviceOf(90));
  EXPECT_EQ(blocks.status().message(),
            "variant \"64x16 by 16\" wants n to be a multiple of 16, got 63");
}

TEST(SelectTest, ChoicesAreMeasuredNotOrdered) {
  KernelSet set = Rows();
  set.choices[0].tile = "1024x1";
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 64)), "1024x1 by 16");
  // Rows count as columns do: half as many of both are as near as a quarter of one.
  set.choices = {{{1024, 64}, "64x16"}, {{16, 64}, "256x4"}};
  EXPECT_EQ(ChosenOf(set, OrderOf(512, 64)), "64x16 by 16");
  EXPECT_EQ(ChosenOf(set, OrderOf(32, 64)), "256x4 by 16");
}

TEST(SelectTest, WithoutAChoiceTheFirstThatTakesItIsChosen) {
  KernelSet set = Rows();
  set.choices = {{{4096}, "1024x1"}, {{4096, 64}, "no such tile"}};
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 100)), "256x4");
}

TEST(SelectTest, RefusalsNameTheMostGeneralKernelsReason) {
  const KernelSet set = Rows();
  const absl::Status status = CheckTaken(set, OrderOf(3, 1025), DeviceOf(90));
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_EQ(status.message(), "variant \"1024x1\" requires n <= COLUMNS, got rows 3, n 1025");
  EXPECT_EQ(Choose(set, OrderOf(3, 1025), DeviceOf(90)).status(), status);
  EXPECT_TRUE(CheckTaken(set, OrderOf(3, 1024), DeviceOf(90)).ok());
  EXPECT_EQ(CheckTaken(KernelSet(), OrderOf(1, 1), DeviceOf(90)).message(),
            "no kernel was compiled for this");
}

TEST(SelectTest, OtherTraitsAreNoReason) {
  KernelSet set = Rows();
  for (size_t i = 0; i < set.kernels.size(); ++i)
    set.kernels[i].traits = {{"form", i < 4 ? "tanh" : "none"}};
  Order order = OrderOf(4096, 16);
  order.traits = {{"form", "none"}};
  EXPECT_EQ(ChosenOf(set, order), "256x4");
  order = OrderOf(4096, 65);
  order.traits = {{"form", "tanh"}};
  EXPECT_EQ(ChosenOf(set, order), "variant \"64x16\" requires n <= COLUMNS, got rows 4096, n 65");
}

TEST(SelectTest, BlocksAreWhatTheGridSaysWithinCudasLimits) {
  const CompiledKernel kernel = KernelOf(64, 16, 1);
  const auto blocks = BlocksFor(kernel, OrderOf(33, 64), DeviceOf(90));
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(blocks->x, 3u);
  EXPECT_EQ(blocks->y, 1u);
  EXPECT_TRUE(BlocksFor(kernel, OrderOf(int64_t{0x7FFFFFFF} * 16, 64), DeviceOf(90)).ok());
  const auto many = BlocksFor(kernel, OrderOf(int64_t{0x7FFFFFFF} * 16 + 1, 64), DeviceOf(90));
  EXPECT_THAT(std::string(many.status().message()),
              HasSubstr("would take 2147483648 blocks in dimension 0 of its grid; the limit is "
                        "2147483647"));
  CompiledKernel deep = kernel;
  deep.grid = {*IntegerExpression::Parse("1", IsName), *IntegerExpression::Parse("rows", IsName)};
  EXPECT_TRUE(BlocksFor(deep, OrderOf(65535, 1), DeviceOf(90)).ok());
  EXPECT_FALSE(BlocksFor(deep, OrderOf(65536, 1), DeviceOf(90)).ok());
  EXPECT_FALSE(BlocksFor(deep, OrderOf(0, 1), DeviceOf(90)).ok());
}

TEST(SelectTest, IntegersOf32BitsAreNotCut) {
  CompiledKernel kernel = KernelOf(64, 16, 1);
  kernel.requirements.clear();
  EXPECT_TRUE(BlocksFor(kernel, OrderOf(1, 0x7FFFFFFF), DeviceOf(90)).ok());
  EXPECT_EQ(BlocksFor(kernel, OrderOf(1, 0x80000000), DeviceOf(90)).status().message(),
            "variant \"64x16\" takes n up to 2147483647, got 2147483648");
}

TEST(SelectTest, CodeRunsOnItsComputeCapabilityAndBeforeHopperOnLaterOnesOfItsGeneration) {
  CompiledKernel kernel;
  for (const int32_t architecture : {80, 86, 90, 120}) {
    kernel.images.emplace_back();
    kernel.images.back().architecture = architecture;
  }
  const auto image_for = [&](int32_t architecture) {
    const Image* const image = ImageFor(kernel, architecture);
    return image == nullptr ? 0 : image->architecture;
  };
  EXPECT_EQ(image_for(80), 80);
  EXPECT_EQ(image_for(87), 86);
  EXPECT_EQ(image_for(89), 86);
  EXPECT_EQ(image_for(90), 90);
  EXPECT_EQ(image_for(75), 0);
  EXPECT_EQ(image_for(100), 0);
  EXPECT_EQ(image_for(121), 0);
}

TEST(SelectTest, DevicesThatCannotRunItAreTold) {
  KernelSet set = Rows();
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 64), 100),
            "the kernels are not compiled for cuda:0's compute capability 10.0; "
            "CMAKE_CUDA_ARCHITECTURES decides that");
  for (CompiledKernel& kernel : set.kernels) kernel.images.back().shared_bytes = 256 << 10;
  EXPECT_EQ(ChosenOf(set, OrderOf(4096, 1024)),
            "variant \"1024x1\" needs 262144 bytes of shared memory a block; cuda:0 has 232448");
}

}  // namespace
}  // namespace warpcall::triton
