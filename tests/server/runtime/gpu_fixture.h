// The machine's first GPU, for tests that need one.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "server/runtime/cuda/cuda_device.h"
#include "tests/server/runtime/launched_row.h"

namespace warpcall::testing {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto count = CudaDevice::Count();
    ASSERT_TRUE(count.ok()) << count.status();
    if (*count == 0) GTEST_SKIP() << "there is no GPU here";
    auto device = CudaDevice::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  // Null after a failure.
  std::unique_ptr<LaunchedRow> CreateRow(const RowRequest& request) {
    auto row = LaunchedRow::Create(device_.get(), request);
    EXPECT_TRUE(row.ok()) << row.status();
    return row.ok() ? *std::move(row) : nullptr;
  }

  std::unique_ptr<CudaDevice> device_;
};

// Three rows to check the occupancy of: bound by
// memory, by memory with reductions, by arithmetic.
inline std::vector<RowRequest> WatchedRows() {
  return {{"gelu", "vectorized", DataType::kFloat32, {{1 << 26}}},
          {"softmax", "cuda", DataType::kFloat32, {{16384, 4096}}},
          {"matmul", "mma_tiled", DataType::kBFloat16, {{4096, 4096}, {4096, 4096}}}};
}

}  // namespace warpcall::testing
