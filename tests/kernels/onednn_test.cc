// oneDNN's limits: its instruction set, for recorded facts of processors and hypervisors, and its
// threads.
#include "kernels/cpu/onednn.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/check/compare.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/onednn_isa.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall::onednn {
namespace {

using cpu::AmxFacts;
using cpu::ReadAmxFacts;

constexpr auto kWithoutAmx = dnnl::cpu_isa::avx512_core_bf16;

// A Xeon of the Sapphire Rapids kind, Linux 6.
constexpr AmxFacts kSapphireRapidsAmx = {
    .leaf_max = 0x20, .features = 0xFFDD4432, .palette_max = 1, .xcr0 = 0x602E7, .permitted = true};

TEST(OnednnIsaTest, AmxThatIsFullyThereIsUsed) {
  EXPECT_EQ(IsaLimit(kSapphireRapidsAmx, ""), std::nullopt);
  EXPECT_EQ(IsaLimit(kSapphireRapidsAmx, "AVX2"), std::nullopt);
}

// A hypervisor whose last leaf is 0x1C: a leaf beyond that reads as the last one, or as 0.
TEST(OnednnIsaTest, AmxWithoutItsLeafIsNotUsed) {
  AmxFacts facts = kSapphireRapidsAmx;
  facts.leaf_max = 0x1C;
  for (const uint32_t read : {0u, 1u}) {
    facts.palette_max = read;
    EXPECT_EQ(IsaLimit(facts, ""), kWithoutAmx);
  }
}

TEST(OnednnIsaTest, AmxWithoutAPaletteIsNotUsed) {
  AmxFacts facts = kSapphireRapidsAmx;
  facts.palette_max = 0;
  EXPECT_EQ(IsaLimit(facts, ""), kWithoutAmx);
}

TEST(OnednnIsaTest, AmxThatTheSystemRefusesIsNotUsed) {
  AmxFacts refused = kSapphireRapidsAmx;
  refused.permitted = false;
  EXPECT_EQ(IsaLimit(refused, ""), kWithoutAmx);
  AmxFacts not_kept = kSapphireRapidsAmx;
  not_kept.xcr0 = 0x2E7;
  EXPECT_EQ(IsaLimit(not_kept, ""), kWithoutAmx);
}

// An EPYC of the Zen 5 kind, under a hypervisor.
TEST(OnednnIsaTest, AProcessorWithoutAmxIsLeftAlone) {
  const AmxFacts facts = {.leaf_max = 0x1C, .features = 0x110, .xcr0 = 0xE7};
  EXPECT_EQ(IsaLimit(facts, ""), std::nullopt);
  EXPECT_EQ(IsaLimit(facts, "ALL"), std::nullopt);
}

TEST(OnednnIsaTest, TheUsersLimitStandsWhereItIsLower) {
  AmxFacts facts = kSapphireRapidsAmx;
  facts.leaf_max = 0x1C;
  facts.palette_max = 0;
  for (const char* const lower : {"SSE41", "avx2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_BF16"})
    EXPECT_EQ(IsaLimit(facts, lower), std::nullopt) << lower;
  // oneDNN reads an unknown name as "all".
  for (const char* const higher : {"AVX512_CORE_AMX", "ALL", "DEFAULT", "nonsense"})
    EXPECT_EQ(IsaLimit(facts, higher), kWithoutAmx) << higher;
}

// On whatever machine this is.
TEST(OnednnIsaTest, TheMachineAtHandIsReadAlikeEveryTime) {
  const AmxFacts first = ReadAmxFacts();
  const AmxFacts second = ReadAmxFacts();
  EXPECT_GE(first.leaf_max, 7u);
  EXPECT_EQ(first.features, second.features);
  EXPECT_EQ(first.permitted, second.permitted);
}

}  // namespace
}  // namespace warpcall::onednn

namespace warpcall {
namespace {

// Threads of oneDNN's rows: none beside the caller's for little work.

using testing::Memory;

TEST(OnednnThreadsTest, AreAsManyAsTheWorkIsWorth) {
  EXPECT_EQ(onednn::ThreadsFor(0, 100, 8), 1);
  EXPECT_EQ(onednn::ThreadsFor(199, 100, 8), 1);
  EXPECT_EQ(onednn::ThreadsFor(200, 100, 8), 2);
  EXPECT_EQ(onednn::ThreadsFor(int64_t{1} << 62, 100, 8), 8);
  EXPECT_EQ(onednn::ThreadsFor(int64_t{1} << 62, 100, 1), 1);
}

// Their numbers, which the system does not give to others soon.
std::set<std::string> ThreadsOfThisProcess() {
  DIR* const folder = opendir("/proc/self/task");
  std::set<std::string> threads;
  while (const dirent* entry = readdir(folder)) threads.insert(entry->d_name);
  closedir(folder);
  return threads;
}

// CPUs that this process may run on, by which OpenMP chooses its threads.
int Cpus() {
  cpu_set_t cpus;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
  return CPU_COUNT(&cpus);
}

struct RowWork {
  const char* kernel;
  const char* row;
  std::vector<Dims> shapes;
};

// Number of threads that start when a thread without a team runs a row once. The last such thread's
// team may still be ending then.
int ThreadsStartedBy(const RowWork& work) {
  cpu::ThreadPool& pool = testing::TestPool();  // its own threads start with it
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
    const std::set<std::string> before = ThreadsOfThisProcess();
    EXPECT_EQ(testing::RunOnCpu({.pool = &pool}, row, problem, operands), absl::OkStatus());
    const std::set<std::string> after = ThreadsOfThisProcess();
    started = static_cast<int>(std::count_if(after.begin(), after.end(), [&](const auto& thread) {
      return before.find(thread) == before.end();
    }));
  });
  caller.join();
  return started;
}

TEST(OnednnThreadsTest, LittleWorkStartsNoneAndMuchWorkDoes) {
  const RowWork much = {"gelu", "onednn_eltwise", {{2048, 1024}}};
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    EXPECT_EQ(ThreadsStartedBy(much) > 0, Cpus() > 1);
  }
  const Dims rows = {64, 64};
  for (const RowWork& little :
       std::vector<RowWork>{{"identity", "onednn_reorder", {rows}},
                            {"gelu", "onednn_eltwise", {rows}},
                            {"softmax", "onednn_softmax", {rows}},
                            {"layernorm", "onednn_layer_normalization", {rows, {64}, {64}}},
                            {"matmul", "onednn_matmul", {rows, rows}},
                            {"linear", "onednn_matmul", {rows, rows, {64}}}})
    EXPECT_EQ(ThreadsStartedBy(little), 0) << little.row;
}

// Returns true if oneDNN may choose the threads at each call: in its own code, not its gemm.
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
  std::vector<RowWork> much = {
      {"identity", "onednn_reorder", {matrix}},
      {"gelu", "onednn_eltwise", {matrix}},
      {"softmax", "onednn_softmax", {matrix}},
      {"layernorm", "onednn_layer_normalization", {matrix, {1024}, {1024}}}};
  if (IsByBrgemm(1024)) {
    much.push_back({"matmul", "onednn_matmul", {matrix, matrix}});
    much.push_back({"linear", "onednn_matmul", {matrix, matrix, {1024}}});
  }
  for (const RowWork& work : much) EXPECT_EQ(ThreadsStartedBy(work), 0) << work.row;
}

}  // namespace
}  // namespace warpcall
