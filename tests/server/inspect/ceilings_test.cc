#include "server/inspect/copy_ceiling.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "server/inspect/flops_ceiling.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall::inspect {
namespace {

class CopyCeilingTest : public ::testing::Test {
 protected:
  CopyCeilingTest() {
    AddCpuKernels(&registry_);
    stream_ = *device_.CreateStream();
  }

  absl::StatusOr<std::unique_ptr<CopyCeiling>> Create(int64_t bytes) {
    return CopyCeiling::Create({&registry_, &device_.properties(), stream_.get(), &pool_}, bytes);
  }

  Registry registry_;
  cpu::ThreadPool pool_{2};
  CpuDevice device_{2};
  std::unique_ptr<Stream> stream_;
};

TEST_F(CopyCeilingTest, IsPlausible) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{64} << 10, int64_t{16} << 20}) {
    const auto ceiling = Create(bytes);
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

TEST_F(CopyCeilingTest, NeedsIdentity) {
  registry_ = Registry();
  EXPECT_EQ(Create(64).status().code(), absl::StatusCode::kNotFound);
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

TEST(FlopsCeilingTest, IsPlausible) {
  FlopsCeiling ceiling(2);
  EXPECT_EQ(ceiling.flops_per_second(), 0);
  for (int i = 0; i < 5; ++i) ceiling.Sample();
  EXPECT_EQ(ceiling.samples(), 5);
  std::printf("multiply-adds: %.1f GFLOP/s\n", ceiling.flops_per_second() * 1e-9);
  EXPECT_GT(ceiling.flops_per_second(), 1e8);
  EXPECT_LT(ceiling.flops_per_second(), 1e13);
}

}  // namespace
}  // namespace warpcall::inspect
