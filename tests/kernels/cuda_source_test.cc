// The CUDA C++ that expressions become: its text, whether NVRTC takes it, and what it computes,
// compiled for the host with threads in a GPU's place. The last two are skipped where the machine
// has no NVRTC, or no compiler.
#include "kernels/expression/cuda_source.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "kernels/compiled/nvrtc.h"
#include "kernels/fused/fused.h"
#include "tests/kernels/random_expression.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/temp_folder.h"

namespace warpcall::testing {
namespace {

using expression::CudaKernel;
using ::testing::HasSubstr;
using ::testing::Not;

Problem FusedProblem(const std::string& text, const std::vector<Dims>& shapes, DataType type,
                     int64_t seed = 0) {
  std::vector<TensorSpec> specs;
  for (const Dims& dims : shapes) specs.push_back({type, dims});
  return *MakeProblem(FusedOp(), specs, {{"expression", text}, {"seed", seed}});
}

CudaKernel KernelOf(const Problem& problem) {
  const fused::Program program = fused::ProgramOf(problem);
  return expression::CudaKernelFor(
      {program.graph, program.layout, problem.outputs[0].data_type, program.seed});
}

TEST(CudaSourceTest, TheFormSuitsTheProblem) {
  const auto kernel = [](const std::string& text, const std::vector<Dims>& shapes) {
    return KernelOf(FusedProblem(text, shapes, DataType::kBFloat16));
  };
  const CudaKernel elements = kernel("gelu(x0 + x1)", {{64, 4096}, {4096}});
  EXPECT_EQ(elements.form, CudaKernel::Form::kElements);
  EXPECT_EQ(elements.blocks, 64 * 4096 / 8 / 256);
  EXPECT_THAT(elements.source, HasSubstr("struct __align__(16) Vector"));
  EXPECT_THAT(kernel("x0 * 2",
                     {
                         {64, 33},
                     })
                  .source,
              HasSubstr("struct __align__(16) Vector"));
  EXPECT_THAT(kernel("x0 + x1", {{64, 33}, {33}}).source, HasSubstr("struct __align__(2) Vector"));
  const CudaKernel warps = kernel("softmax(x0)", {{64, 256}});
  EXPECT_EQ(warps.form, CudaKernel::Form::kKeptRows);
  EXPECT_EQ(warps.threads, 128);
  EXPECT_EQ(warps.blocks, 16);
  const CudaKernel blocks = kernel("softmax(x0)", {{64, 8192}});
  EXPECT_EQ(blocks.form, CudaKernel::Form::kKeptRows);
  EXPECT_EQ(blocks.blocks, 64);
  EXPECT_EQ(kernel("softmax(x0)", {{4, 1 << 20}}).form, CudaKernel::Form::kReadAgain);
}

TEST(CudaSourceTest, NothingOfTheTextIsInIt) {
  const CudaKernel kernel = KernelOf(
      FusedProblem("where(x0 < 0.3, silu(x0), pow(x0, 1.7))", {{1024}}, DataType::kFloat32));
  EXPECT_THAT(kernel.source, HasSubstr("__uint_as_float(1050253722u)"));  // 0.3
  EXPECT_THAT(kernel.source, Not(HasSubstr("where")));
  EXPECT_THAT(kernel.source, Not(HasSubstr("0.3")));
  EXPECT_THAT(kernel.source, Not(HasSubstr("1.7")));
  EXPECT_THAT(kernel.source, Not(HasSubstr("#include")));
}

// Problems of every form, with every type, that random expressions are compiled for.
struct Sample {
  std::string name;
  Problem problem;
};

std::vector<Sample> Samples(uint64_t first, int count) {
  const std::vector<Dims> all[] = {{{37, 24}, {24}, {37, 1}},  {{3, 7, 5}, {7, 1}, {3, 7, 5}},
                                   {{4096}, {4096}, {1}},      {{5, 4100}, {5, 1}, {4100}},
                                   {{2, 70000}, {70000}, {1}}, {{9, 1}, {9, 1}, {4}}};
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    const RandomExpression expression(first + static_cast<uint64_t>(i),
                                      {.depth = 2 + i % 4, .inputs = 3, .dropout = true});
    std::vector<Dims> shapes = all[i % 6];
    shapes.resize(static_cast<size_t>(expression.inputs()));
    const DataType type = kDataTypes[i / 6 % 3];
    samples.push_back({absl::StrCat("seed ", first, " + ", i, ": ", expression.text()),
                       FusedProblem(expression.text(), shapes, type, 17 * i)});
  }
  return samples;
}

TEST(CudaSourceTest, NvrtcTakesRandomExpressions) {
  const absl::StatusOr<const compiled::Nvrtc*> nvrtc = compiled::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  for (const Sample& sample : Samples(RunSeed(), 90)) {
    const std::string source = KernelOf(sample.problem).source;
    const absl::StatusOr<std::string> cubin =
        (*nvrtc)->Compile(source, {"--gpu-architecture=sm_90a", "--fmad=false", "-default-device"});
    ASSERT_TRUE(cubin.ok()) << cubin.status() << sample.name << "\n" << source;
  }
}

// In place of what CUDA C++ has beside C++: threads of a block are threads, and meet where they
// must.
constexpr char kHost[] = R"(
#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
#define __align__(n) alignas(n)
struct Index { unsigned x; };
thread_local Index threadIdx, blockIdx;
struct Block {
  explicit Block(int threads) : all(threads) {
    for (int i = 0; i < threads; i += 32) warps.push_back(std::make_unique<std::barrier<>>(32));
  }
  std::barrier<> all;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  double values[1024];
};
Block* block = nullptr;
inline void __syncthreads() { block->all.arrive_and_wait(); }
template <typename V>
V __shfl_xor_sync(unsigned, V value, int lanes) {
  std::barrier<>& warp = *block->warps[threadIdx.x / 32];
  block->values[threadIdx.x] = value;
  warp.arrive_and_wait();
  const V other = static_cast<V>(block->values[threadIdx.x ^ lanes]);
  warp.arrive_and_wait();
  return other;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float rsqrtf(float a) { return 1 / sqrtf(a); }
template <typename Kernel>
void Launch(const Kernel& kernel, long long blocks, int threads, bool meet) {
  if (!meet) {
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < (unsigned)threads; ++threadIdx.x) kernel();
    return;
  }
  Block one(threads);
  block = &one;
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      threadIdx.x = i;
      for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        kernel();
        one.all.arrive_and_wait();
      }
    });
  for (std::thread& thread : all) thread.join();
}
)";

// A function that launches the kernel: run_NUMBER(inputs, output).
std::string HostSource(const CudaKernel& kernel, size_t inputs, int number) {
  std::string arguments;
  for (size_t i = 0; i < inputs; ++i) absl::StrAppend(&arguments, "(const T*)x[", i, "], ");
  const bool meet = kernel.form != CudaKernel::Form::kElements;
  return absl::StrCat("namespace k", number, " {\n#define warpcall_fused kernel_", number, "\n",
                      kernel.source, "#undef warpcall_fused\nextern \"C\" void run_", number,
                      "(const void** x, void* y) {\n  Launch([=] { kernel_", number, "(", arguments,
                      "(T*)y); }, ", kernel.blocks, "ll, ", kernel.threads, ", ",
                      meet ? "true" : "false", ");\n}\n}\n");
}

// What float32 kernels compute, against the definition.
TEST(CudaSourceTest, CompiledForTheHostItMeetsTheDefinition) {
  std::vector<Sample> samples;
  for (const Sample& sample : Samples(RunSeed() + 5000, 90))
    if (sample.problem.outputs[0].data_type == DataType::kFloat32) samples.push_back(sample);
  const std::vector<Dims> rows = {{5, 260}, {260}};
  for (const char* const text : {"softmax(x0 + x1)", "(x0 - mean(x0)) * rsqrt(var(x0) + 1e-5) * x1",
                                 "max(x0) - min(x0 * x1) + sum(x0)"})
    samples.push_back({text, FusedProblem(text, rows, DataType::kFloat32)});
  const TempFolder folder;
  std::string source = kHost;
  for (size_t i = 0; i < samples.size(); ++i)
    source += HostSource(KernelOf(samples[i].problem), samples[i].problem.inputs.size(),
                         static_cast<int>(i));
  std::ofstream(folder.Path("kernels.cc")) << source;
  const std::string library = folder.Path("kernels.so");
  if (std::system("c++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no c++";
  ASSERT_EQ(
      std::system(absl::StrCat("c++ -std=c++20 -O1 -w -ffp-contract=off -fPIC -shared -pthread "
                               "-o ",
                               library, " ", folder.Path("kernels.cc"))
                      .c_str()),
      0);
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  for (size_t i = 0; i < samples.size(); ++i) {
    const Problem& problem = samples[i].problem;
    SCOPED_TRACE(samples[i].name);
    std::vector<Memory> inputs;
    for (const TensorSpec& spec : problem.inputs)
      inputs.push_back(FilledInput(spec, i % 3 == 0 ? Fill::kSpecial : Fill::kNormal,
                                   absl::StrCat("host", i, inputs.size())));
    const Operands operands = OperandsOf(inputs);
    Memory output(problem.outputs[0].bytes());
    output.Poison(0x42);
    const auto run = reinterpret_cast<void (*)(const void* const*, void*)>(
        dlsym(loaded, absl::StrCat("run_", i).c_str()));
    run(operands.inputs.data(), output.data());
    EXPECT_TRUE(output.CheckBands("the output").ok());
    const Truth truth = TruthFor(FusedOp(), problem, inputs);
    const Disagreement found = Compare(truth, output.data());
    ASSERT_EQ(found.wrong, 0) << found.text << KernelOf(problem).source;
  }
  dlclose(loaded);
}

}  // namespace
}  // namespace warpcall::testing
