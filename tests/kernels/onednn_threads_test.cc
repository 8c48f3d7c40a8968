// How many threads oneDNN's rows take: none beside the caller's for little work.
#include <dirent.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

}  // namespace
}  // namespace warpcall
