// CUDA C++ generated for expressions: its text, its compilation by NVRTC, and its results, compiled
// for the host with threads in a GPU's place. The last two are skipped where the machine has no
// NVRTC, or no compiler.
#include "kernels/expression/cuda_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "kernels/common/saturate.h"
#include "kernels/compiled/nvrtc.h"
#include "kernels/fused/fused.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_expression.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/norm/norm_expression.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
#include "kernels/softmax/softmax_expression.h"
#include "tests/kernels/host_kernels.h"
#include "tests/kernels/random_expression.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

using expression::CudaKernel;
using Form = expression::CudaShape::Form;
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

// Or else one client's seeds would fill the cache of compiled code for all.
TEST(CudaSourceTest, OnlyWhatDropsOutHasItsSeed) {
  const auto source = [](const std::string& text, int64_t seed) {
    return KernelOf(FusedProblem(text, {{64, 4096}}, DataType::kBFloat16, seed)).source;
  };
  EXPECT_EQ(source("gelu(x0)", 1), source("gelu(x0)", 2));
  EXPECT_NE(source("dropout(x0, 0.5)", 1), source("dropout(x0, 0.5)", 2));
}

TEST(CudaSourceTest, TheFormSuitsTheProblem) {
  const auto kernel = [](const std::string& text, const std::vector<Dims>& shapes) {
    return KernelOf(FusedProblem(text, shapes, DataType::kBFloat16));
  };
  const CudaKernel elements = kernel("gelu(x0 + x1)", {{64, 4096}, {4096}});
  EXPECT_EQ(elements.shape.form, Form::kElements);
  EXPECT_EQ(elements.shape.blocks, 64 * 4096 / 8 / 256);
  EXPECT_THAT(elements.source, HasSubstr("struct __align__(16) Vector"));
  EXPECT_THAT(kernel("x0 * 2",
                     {
                         {64, 33},
                     })
                  .source,
              HasSubstr("struct __align__(16) Vector"));
  EXPECT_THAT(kernel("x0 + x1", {{64, 33}, {33}}).source, HasSubstr("struct __align__(2) Vector"));
  EXPECT_FALSE(kernel("x0 * 2", {{64, 32}}).shape.has_tail);
  EXPECT_TRUE(kernel("x0 * 2", {{63, 33}}).shape.has_tail);
  const CudaKernel warps = kernel("softmax(x0)", {{64, 256}});
  EXPECT_EQ(warps.shape.form, Form::kKeptRows);
  EXPECT_EQ(warps.shape.block_threads, 128);
  EXPECT_EQ(warps.shape.blocks, 16);
  const CudaKernel blocks = kernel("softmax(x0)", {{64, 8192}});
  EXPECT_EQ(blocks.shape.form, Form::kKeptRows);
  EXPECT_EQ(blocks.shape.blocks, 64);
  EXPECT_EQ(kernel("softmax(x0)", {{4, 1 << 20}}).shape.form, Form::kReadAgain);
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

// Sixteen softmaxes in each other are 49 passes of up to 81 steps: unfolded for eight elements at a
// time they took NVRTC 15 s.
TEST(CudaSourceTest, ManyPassesOverLongRowsAreNotUnfolded) {
  const auto vector_of = [](int softmaxes) {
    std::string text = "x0";
    for (int i = 0; i < softmaxes; ++i) text = absl::StrCat("softmax(", text, ")");
    const CudaKernel kernel = KernelOf(FusedProblem(text, {{4, 1 << 20}}, DataType::kBFloat16));
    EXPECT_EQ(kernel.shape.form, Form::kReadAgain);
    return kernel.shape.vector;
  };
  EXPECT_EQ(vector_of(1), 8);
  EXPECT_EQ(vector_of(4), 8);
  EXPECT_LT(vector_of(8), 8);
  EXPECT_EQ(vector_of(16), 1);
}

// Twice every shape in every type, of other expressions in each run.
constexpr int kRandomSamples = 36;

// Problems of every form, with every type, that random expressions are compiled for.
struct Sample {
  std::string name;
  const Op* op = &FusedOp();
  Problem problem;
  CudaKernel kernel = {};
};

Sample SampleOf(const std::string& name, const Problem& problem) {
  return {.name = name, .problem = problem, .kernel = KernelOf(problem)};
}

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
    samples.push_back(SampleOf(absl::StrCat("seed ", first, " + ", i, ": ", expression.text()),
                               FusedProblem(expression.text(), shapes, type, 17 * i)));
  }
  return samples;
}

// The compiler that a server uses takes them all.
void ExpectNvrtcTakes(const std::vector<Sample>& samples) {
  if (TestElementsMax() > 0) GTEST_SKIP() << "a tool does not see into NVRTC";
  const absl::StatusOr<const compiled::Nvrtc*> nvrtc = compiled::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status();
  for (const Sample& sample : samples) {
    const absl::StatusOr<compiled::CudaCode> code = (*nvrtc)->Compile(
        {sample.kernel.source, {"--gpu-architecture=sm_90a", "--fmad=false", "-default-device"}});
    ASSERT_TRUE(code.ok()) << code.status() << sample.name << "\n" << sample.kernel.source;
  }
}

TEST(CudaSourceTest, NvrtcTakesRandomExpressions) {
  ExpectNvrtcTakes(Samples(RunSeed(), kRandomSamples));
}

// Runs it for the host on inputs of `fill`, and compares with the definition.
void ExpectTruthOnHost(const HostKernels& host, int number, const Sample& sample, Fill fill) {
  SCOPED_TRACE(sample.name);
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : sample.problem.inputs)
    inputs.push_back(FilledInput(spec, fill, absl::StrCat("host", number, inputs.size())));
  Memory output(sample.problem.outputs[0].bytes());
  output.Poison(0x42);
  host.Run(number, OperandsOf(inputs).inputs.data(), output.data());
  EXPECT_TRUE(output.CheckBands("the output").ok());
  const Truth truth = TruthFor(*sample.op, sample.problem, inputs);
  const Disagreement found = Compare(truth, output.data());
  ASSERT_EQ(found.wrong, 0) << found.text << sample.kernel.source;
}

void ExpectTruthsOnHost(const std::vector<Sample>& samples, const std::vector<Fill>& fills) {
  HostKernels host;
  for (const Sample& sample : samples) host.Add(sample.kernel, sample.problem.inputs.size());
  if (!host.Compile()) GTEST_SKIP() << "there is no c++, or a tool runs";
  for (size_t i = 0; i < samples.size(); ++i)
    for (const Fill fill : fills) {
      ExpectTruthOnHost(host, static_cast<int>(i), samples[i], fill);
      if (::testing::Test::HasFatalFailure()) return;
    }
}

TEST(CudaSourceTest, CompiledForTheHostItMeetsTheDefinition) {
  std::vector<Sample> samples = Samples(RunSeed() + 5000, kRandomSamples);
  const std::vector<Dims> rows = {{5, 260}, {260}};
  for (const DataType type : kDataTypes)
    for (const char* const text :
         {"softmax(x0 + x1)", "(x0 - mean(x0)) * rsqrt(var(x0) + 1e-5) * x1",
          "max(x0) - min(x0 * x1) + sum(x0)"})
      samples.push_back(SampleOf(text, FusedProblem(text, rows, type)));
  ExpectTruthsOnHost(samples, {Fill::kNormal, Fill::kSpecial});
}

// The second of two zeros is the result, whatever the GPU's own maximum and minimum do.
TEST(CudaSourceTest, ZerosKeepTheirSignInMaximumAndMinimum) {
  std::vector<Sample> samples;
  for (const char* const text : {"max(relu(x0), -relu(x0))", "min(-relu(x0), relu(x0))"})
    samples.push_back(SampleOf(text, FusedProblem(text, {{1009}}, DataType::kFloat32)));
  ExpectTruthsOnHost(samples, {Fill::kNormal, Fill::kSpecial});
}

// Elements that are divided by one value are multiplied by its reciprocal, in two steps where that
// leaves the range of normal numbers.
TEST(CudaSourceTest, QuotientsHoldAtTheEndsOfTheRange) {
  std::vector<Sample> samples;
  for (const DataType type : kDataTypes) {
    samples.push_back(SampleOf("x0 / x1", FusedProblem("x0 / x1", {{512, 40}, {512, 1}}, type)));
    for (const char* const text : {"x0 / 3", "x0 / 1e-38", "x0 / 2e38", "x0 / 1e-45", "0 - x0 / 0"})
      samples.push_back(SampleOf(text, FusedProblem(text, {{5, 1009}}, type)));
  }
  ExpectTruthsOnHost(samples, {Fill::kNormal, Fill::kWide, Fill::kSpecial, Fill::kPatterns});
}

// A single row of any length: whole vectors, and the elements left over.
TEST(CudaSourceTest, ElementsBehindTheLastVectorAreComputedToo) {
  std::vector<Sample> samples;
  for (const DataType type : kDataTypes)
    for (const int64_t n : {1, 2, 3, 7, 8, 9, 15, 17, 2047, 2049})
      samples.push_back(SampleOf("gelu(x0) + x1 * x2",
                                 FusedProblem("gelu(x0) + x1 * x2", {{n}, {n}, {1}}, type)));
  ExpectTruthsOnHost(samples, {Fill::kNormal, Fill::kSpecial});
}

// A thread takes several rows, one after the other; the last ones may not exist.
TEST(CudaSourceTest, AThreadTakesSeveralRows) {
  std::vector<Sample> samples;
  for (const DataType type : kDataTypes)
    for (const int64_t columns : {5, 24, 64, 200}) {
      const char* const text = "softmax(x0 * x1) + x2";
      Sample sample = SampleOf(text, FusedProblem(text, {{37, columns}, {columns}, {37, 1}}, type));
      const fused::Program program = fused::ProgramOf(sample.problem);
      expression::CudaShape shape = sample.kernel.shape;
      ASSERT_EQ(shape.form, Form::kKeptRows);
      shape.rows = 4;
      shape.blocks = CeilDivide(37, shape.rows_of_block());
      sample.kernel = expression::CudaKernelIn(
          shape, {.graph = program.graph, .layout = program.layout, .data_type = type});
      samples.push_back(std::move(sample));
    }
  ExpectTruthsOnHost(samples, {Fill::kNormal, Fill::kSpecial});
}

// The ops that are expressed in it, in their rows' arithmetic, within their own tolerances.
Sample OpSample(const Op& op, const std::vector<Dims>& shapes, DataType type,
                const std::vector<NamedAttribute>& attributes = {}) {
  std::vector<TensorSpec> specs;
  for (const Dims& dims : shapes) specs.push_back({type, dims});
  Sample sample = {.name = op.name, .op = &op, .problem = *MakeProblem(op, specs, attributes)};
  for (const TensorSpec& spec : specs) absl::StrAppend(&sample.name, " ", ToString(spec));
  const expression::CudaTask task = &op == &GeluOp()      ? gelu::TaskOf(sample.problem)
                                    : &op == &SoftmaxOp() ? softmax::TaskOf(sample.problem)
                                                          : norm::TaskOf(sample.problem);
  const expression::Layout layout = LayoutOf(task.graph, task.inputs);
  sample.kernel = expression::CudaKernelFor({.graph = task.graph,
                                             .layout = layout,
                                             .data_type = type,
                                             .seed = task.seed,
                                             .arithmetic = task.arithmetic});
  return sample;
}

std::vector<Sample> OpSamples() {
  std::vector<Sample> samples;
  for (const DataType type : kDataTypes) {
    for (const char* const form : {"tanh", "none"})
      samples.push_back(
          OpSample(GeluOp(), {{3, 1009}}, type, {{"approximate", std::string(form)}}));
    for (const int64_t n : {1, 5, 200, 2056, 5003}) {
      samples.push_back(OpSample(SoftmaxOp(), {{3, n}}, type));
      samples.push_back(OpSample(LayernormOp(), {{3, n}, {n}, {n}}, type));
      samples.push_back(OpSample(RmsnormOp(), {{3, n}, {n}}, type));
    }
    for (const double epsilon : {1e-30, 1e35, 1e60})
      samples.push_back(OpSample(RmsnormOp(), {{5, 67}, {67}}, type, {{"epsilon", epsilon}}));
    samples.push_back(OpSample(SoftmaxOp(), {{5, 12, 1}}, type, {{"axis", int64_t{1}}}));
    samples.push_back(OpSample(LayernormOp(), {{2, 40000}, {40000}, {40000}}, type));
  }
  return samples;
}

TEST(CudaSourceTest, OpsThatAreExpressedMeetTheirDefinitions) {
  ExpectTruthsOnHost(OpSamples(), {Fill::kNormal, Fill::kWide, Fill::kSpecial, Fill::kBroad});
}

// The product may leave the range where the sum with the bias does not.
TEST(CudaSourceTest, LayernormAddsItsBiasToWhatIsNotRounded) {
  const Sample sample = OpSample(LayernormOp(), {{3, 200}, {200}, {200}}, DataType::kFloat32);
  EXPECT_THAT(sample.kernel.source, HasSubstr("= fmaf(v"));
}

TEST(CudaSourceTest, NvrtcTakesTheOps) { ExpectNvrtcTakes(OpSamples()); }

}  // namespace
}  // namespace warpcall::testing
