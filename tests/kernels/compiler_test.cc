// The compiler at run time on a GPU: compiled code runs, also in a graph, and is freed when nobody
// has it; prints the times of compiling and of finding the code again.
#include "kernels/compiled/compiler.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/variant_rows.h"
#include "tests/temp_folder.h"

namespace warpcall::compiled {
namespace {

using testing::DeviceArray;
using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kElements = 256;

// y = a * x for kElements elements.
Program Scale(int a) {
  return {absl::StrCat("extern \"C\" __global__ void scale(const float* x, float* y) {\n"
                       "  y[threadIdx.x] = ",
                       a, ".0f * x[threadIdx.x];\n}\n"),
          "scale"};
}

TEST(CompilerWithoutAGpuTest, WhatCannotBeCompiledForIsSaid) {
  DeviceProperties old = testing::MadeUpH200();
  old.architecture = 35;
  EXPECT_EQ(CheckCompiles(old).code(), absl::StatusCode::kUnimplemented);
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) GTEST_SKIP() << "there is a GPU";
  Compiler compiler;
  EXPECT_FALSE(compiler.Available().ok());
  EXPECT_EQ(compiler.Get(Scale(1)).status(), compiler.Available());
}

class CompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
      GTEST_SKIP() << "there is no GPU here";
    compiler_ = std::make_unique<Compiler>(folder_.Path("."));
    if (!compiler_->Available().ok()) GTEST_SKIP() << compiler_->Available();
    x_ = *DeviceArray::Create(kElements * sizeof(float));
    y_ = *DeviceArray::Create(kElements * sizeof(float));
    std::vector<float> x(kElements);
    for (int i = 0; i < kElements; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i);
    ASSERT_EQ(cudaMemcpy(x_.data(), x.data(), x.size() * sizeof(float), cudaMemcpyDefault),
              cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  void Launch(const CompiledKernel& kernel) {
    void* x = x_.data();
    void* y = y_.data();
    void* arguments[] = {&x, &y};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kElements);
    config.stream = stream_;
    ASSERT_EQ(cudaLaunchKernelExC(&config, static_cast<const void*>(kernel.kernel()), arguments),
              cudaSuccess);
  }
  // Returns the last element, after everything launched has run.
  float Last() {
    float last = -1;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    const auto* const y = static_cast<const float*>(y_.data());
    EXPECT_EQ(cudaMemcpy(&last, y + kElements - 1, sizeof(last), cudaMemcpyDefault), cudaSuccess);
    return last;
  }

  TempFolder folder_;
  std::unique_ptr<Compiler> compiler_;
  DeviceArray x_;
  DeviceArray y_;
  cudaStream_t stream_ = nullptr;
};

TEST_F(CompilerTest, AKernelIsFirstLaunchedWhileAGraphIsCaptured) {
  const auto kernel = compiler_->Get(Scale(3));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_TRUE(absl::StartsWith((*kernel)->image(), "\177ELF"));
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Launch(**kernel);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(Last(), 3.0F * (kElements - 1));
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CompilerTest, WhatIsWrongIsToldByTheCompilersLog) {
  const absl::Status status =
      compiler_->Get({"extern \"C\" __global__ void f() { x = 1; }", "f"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("identifier \"x\" is undefined"));
  const absl::Status missing = compiler_->Get({Scale(1).source, "another"}).status();
  EXPECT_THAT(std::string(missing.message()), HasSubstr("looking for kernel another"));
}

TEST_F(CompilerTest, OthersAreUnloadedWhileOneIsUsed) {
  constexpr int kMany = 300;  // more than are kept
  const auto used = compiler_->Get(Scale(kMany));
  ASSERT_TRUE(used.ok()) << used.status();
  std::weak_ptr<const CompiledKernel> first;
  for (int a = 0; a < kMany; ++a) {
    const auto kernel = compiler_->Get(Scale(a));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    if (a == 0) first = *kernel;
    Launch(**used);
    Launch(**kernel);
    ASSERT_EQ(Last(), static_cast<float>(a * (kElements - 1)));
  }
  EXPECT_TRUE(first.expired());
  Launch(**used);
  EXPECT_EQ(Last(), static_cast<float>(kMany * (kElements - 1)));
}

double MicrosecondsOf(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// Printed, not held against a bar: machines differ.
TEST_F(CompilerTest, TimesOfCompilingAndOfFindingAgain) {
  const auto get = [](Compiler* compiler, int a) {
    const auto kernel = compiler->Get(Scale(a));
    ASSERT_TRUE(kernel.ok()) << kernel.status();
  };
  for (int a = 1000; a < 1003; ++a)
    std::printf("compiling, %d. time: %.1f ms\n", a - 999,
                MicrosecondsOf([&] { get(compiler_.get(), a); }) / 1e3);
  std::vector<double> memory(1001);
  for (double& us : memory) us = MicrosecondsOf([&] { get(compiler_.get(), 1000); });
  std::nth_element(memory.begin(), memory.begin() + 500, memory.end());
  std::printf("finding in memory: %.2f us, median of 1001\n", memory[500]);
  std::vector<double> disk(21);
  for (double& us : disk) {
    Compiler another(folder_.Path("."));
    us = MicrosecondsOf([&] { get(&another, 1000); });
    EXPECT_EQ(another.counts()[Counts::kDiskHits], 1);
  }
  std::nth_element(disk.begin(), disk.begin() + 10, disk.end());
  std::printf("finding on disk: %.3f ms, median of 21\n", disk[10] / 1e3);
  EXPECT_EQ(compiler_->counts()[Counts::kDiskMisses], 3);
}

}  // namespace
}  // namespace warpcall::compiled
