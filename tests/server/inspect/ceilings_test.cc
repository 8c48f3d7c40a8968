#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "server/inspect/copy_ceiling.h"
#include "server/inspect/flops_ceiling.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall::inspect {
namespace {

class CeilingsTest : public ::testing::Test {
 protected:
  CeilingsTest() {
    AddCpuKernels(&registry_);
    stream_ = *device_.CreateStream();
  }

  FastestRows::Site Site() { return {&registry_, &device_.properties(), stream_.get(), &pool_}; }

  Registry registry_;
  cpu::ThreadPool pool_{2};
  CpuDevice device_{2};
  std::unique_ptr<Stream> stream_;
};

TEST_F(CeilingsTest, CopiesArePlausible) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{64} << 10, int64_t{16} << 20}) {
    const auto ceiling = CopyCeiling::Create(Site(), bytes);
    ASSERT_TRUE(ceiling.ok()) << ceiling.status();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*ceiling)->Sample().ok());
    EXPECT_EQ((*ceiling)->samples(), 5);
    EXPECT_GT((*ceiling)->spent_ns(), 0);
    std::printf("copies of %lld bytes: %.1f GB/s\n", static_cast<long long>(bytes),
                (*ceiling)->bytes_per_second() * 1e-9);
    EXPECT_GT((*ceiling)->bytes_per_second(), bytes == 1 ? 1e6 : 1e8);
    EXPECT_LT((*ceiling)->bytes_per_second(), 1e13);
  }
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

TEST_F(CeilingsTest, ArithmeticIsPlausibleInEveryType) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    const auto ceiling = FlopsCeiling::Create(Site(), type);
    ASSERT_TRUE(ceiling.ok()) << ceiling.status();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*ceiling)->Sample().ok());
    EXPECT_EQ((*ceiling)->samples(), 5);
    EXPECT_GT((*ceiling)->spent_ns(), 0);
    std::printf("%s: %.1f GFLOP/s\n", DataTypeName(type), (*ceiling)->flops_per_second() * 1e-9);
    EXPECT_GT((*ceiling)->flops_per_second(), 1e8);
    EXPECT_LT((*ceiling)->flops_per_second(), 1e14);
  }
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

// The ceiling is no lower than what a row of the same type comes to at a problem of its own.
TEST_F(CeilingsTest, NoFastRowIsMuchFasterThanArithmeticsCeiling) {
  const auto ceiling = FlopsCeiling::Create(Site(), DataType::kBFloat16);
  const TensorSpec matrix = {DataType::kBFloat16, {512, 512}};
  const auto rows = FastestRows::Create(Site(), "matmul", {matrix, matrix}, 1);
  ASSERT_TRUE(ceiling.ok() && rows.ok());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE((*ceiling)->Sample().ok());
    ASSERT_TRUE((*rows)->Sample().ok());
  }
  const double achieved = 2.0 * 512 * 512 * 512 * 1e9 / (*rows)->launch_ns();
  EXPECT_LT(achieved, 2 * (*ceiling)->flops_per_second());
}

TEST_F(CeilingsTest, NeedTheirKernels) {
  registry_ = Registry();
  EXPECT_EQ(CopyCeiling::Create(Site(), 64).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FlopsCeiling::Create(Site(), DataType::kBFloat16).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ArithmeticMayBoundTest, OnlyWhereEachByteIsUsedOften) {
  constexpr int64_t kBytes = 3 * 64 * 64 * 2;
  EXPECT_TRUE(ArithmeticMayBound({.bytes = kBytes, .flops = 2 * 64 * 64 * 64}));
  EXPECT_FALSE(ArithmeticMayBound({.bytes = kBytes, .flops = 8 * kBytes}));
  EXPECT_FALSE(ArithmeticMayBound({.bytes = kBytes, .flops = 0}));
}

TEST(CopiesPassCachesTest, KnowsSmallOnes) {
  DeviceProperties gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.l2_bytes = int64_t{50} << 20;
  gpu.memory_bytes = int64_t{140} << 30;
  EXPECT_FALSE(CopiesPassCaches(4096, gpu));
  EXPECT_FALSE(CopiesPassCaches(int64_t{1} << 20, gpu));  // 64 sets of it
  EXPECT_TRUE(CopiesPassCaches(int64_t{16} << 20, gpu));
  EXPECT_TRUE(CopiesPassCaches(int64_t{1} << 34, gpu));
  EXPECT_TRUE(CopiesPassCaches(0, gpu));
}

}  // namespace
}  // namespace warpcall::inspect
