#include "server/judge/time_trial.h"

#include <gtest/gtest.h>

namespace warpcall::judge {
namespace {

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

}  // namespace
}  // namespace warpcall::judge
