// How many threads oneDNN's rows take: none beside the caller's for little work.
#include <dirent.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/check/compare.h"
#include "kernels/cpu/onednn.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall {
namespace {

using testing::Memory;

TEST(OnednnThreadsTest, AreAsManyAsTheWorkIsWorth) {
  EXPECT_EQ(onednn::ThreadsFor(0, 100, 8), 1);
  EXPECT_EQ(onednn::ThreadsFor(199, 100, 8), 1);
  EXPECT_EQ(onednn::ThreadsFor(200, 100, 8), 2);
  EXPECT_EQ(onednn::ThreadsFor(int64_t{1} << 62, 100, 8), 8);
  EXPECT_EQ(onednn::ThreadsFor(int64_t{1} << 62, 100, 1), 1);
}

int ThreadsOfThisProcess() {
  DIR* const folder = opendir("/proc/self/task");
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

struct Work {
  const char* kernel;
  const char* row;
  std::vector<Dims> shapes;
};

// By how many threads the process grows when a thread that has no team yet runs a row once.
int ThreadsStartedBy(const Work& work) {
  const Kernel& kernel = **testing::CpuKernels().Find(work.kernel);
  std::vector<TensorSpec> specs;
  std::vector<Memory> inputs;
  for (const Dims& dims : work.shapes) {
    specs.push_back({.data_type = DataType::kFloat32, .dims = dims});
    inputs.push_back(testing::FilledInput(specs.back(), Fill::kNormal, work.row));
  }
  const Problem problem = *MakeProblem(*kernel.op, specs, {});
  Memory output(problem.outputs[0].bytes());
  Operands operands = testing::OperandsOf(inputs);
  operands.outputs = {output.data()};
  const Implementation& row =
      (*testing::CpuKernels().Select(kernel, work.row, problem, testing::TestDeviceProperties()))
          ->implementation;
  int started = 0;
  std::thread caller([&] {
    const int before = ThreadsOfThisProcess();
    EXPECT_EQ(testing::RunOnCpu({.pool = &testing::TestPool()}, row, problem, operands),
              absl::OkStatus());
    started = ThreadsOfThisProcess() - before;
  });
  caller.join();
  return started;
}

TEST(OnednnThreadsTest, LittleWorkStartsNoneAndMuchWorkDoes) {
  const Work much = {"gelu", "onednn_eltwise", {{2048, 1024}}};
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    EXPECT_EQ(ThreadsStartedBy(much) > 0, std::thread::hardware_concurrency() > 1);
  }
  const Dims rows = {64, 64};
  for (const Work& little :
       std::vector<Work>{{"identity", "onednn_reorder", {rows}},
                         {"gelu", "onednn_eltwise", {rows}},
                         {"softmax", "onednn_softmax", {rows}},
                         {"layernorm", "onednn_layer_normalization", {rows, {64}, {64}}},
                         {"matmul", "onednn_matmul", {rows, rows}},
                         {"linear", "onednn_matmul", {rows, rows, {64}}}})
    EXPECT_EQ(ThreadsStartedBy(little), 0) << little.row;
}

// Whose threads oneDNN may choose anew at each call: its own code's, and not its gemm's.
bool IsByBrgemm(int64_t side) {
  const dnnl::memory::desc matrix({side, side}, dnnl::memory::data_type::f32,
                                  dnnl::memory::dims{side, 1});
  const dnnl::matmul::primitive_desc descriptor(dnnl::matmul::desc(matrix, matrix, matrix),
                                                onednn::CpuEngine());
  return absl::StartsWith(descriptor.impl_info_str(), "brg");
}

// Others are at work with all that the device has.
TEST(OnednnThreadsTest, BesideOthersMuchWorkStartsNoneEither) {
  const int threads = testing::TestPool().threads();
  const cpu::ThreadPool::Guest others(&testing::TestPool(), {.max = threads, .min = threads});
  const Dims matrix = {1024, 1024};
  std::vector<Work> much = {{"identity", "onednn_reorder", {matrix}},
                            {"gelu", "onednn_eltwise", {matrix}},
                            {"softmax", "onednn_softmax", {matrix}},
                            {"layernorm", "onednn_layer_normalization", {matrix, {1024}, {1024}}}};
  if (IsByBrgemm(1024)) {
    much.push_back({"matmul", "onednn_matmul", {matrix, matrix}});
    much.push_back({"linear", "onednn_matmul", {matrix, matrix, {1024}}});
  }
  for (const Work& work : much) EXPECT_EQ(ThreadsStartedBy(work), 0) << work.row;
}

}  // namespace
}  // namespace warpcall
