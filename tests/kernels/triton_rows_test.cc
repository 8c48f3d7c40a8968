// Rows of family `triton` with the kernels of this build: their choices, their refusals and the
// reasons; on a GPU, the loader's errors for code that differs from its manifest.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/gelu/gelu.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/plan.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
#include "kernels/triton/embedded.h"
#include "kernels/triton/loader.h"
#include "kernels/triton/manifest.h"
#include "kernels/triton/row.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};

// Empty where this build has kernels.
std::string WhyNone() {
  const auto manifest = triton::ReadManifest(triton::EmbeddedManifest(), triton::EmbeddedCubins());
  return manifest.ok() ? manifest->unavailable : std::string(manifest.status().message());
}

Problem ProblemOf(const Op& op, const std::vector<TensorSpec>& inputs,
                  const std::vector<NamedAttribute>& attributes = {}) {
  absl::StatusOr<Problem> problem = MakeProblem(op, inputs, attributes);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

// The name of the variant that a row takes on an H200, or why it takes none.
std::string ChosenOf(const Implementation& row, const Problem& problem) {
  const absl::Status supported = row.supports(problem, MadeUpH200());
  if (!supported.ok()) return std::string(supported.message());
  const auto plan = row.plan(problem, {.device = &MadeUpH200()});
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return std::string(plan.status().message());
  return row.variant_names(problem.inputs[0].data_type)[(*plan)->traits().variant];
}

std::string ChosenForMatmul(DataType type, const Dims& a, const Dims& b,
                            const std::vector<NamedAttribute>& attributes = {}) {
  return ChosenOf(matmul::TritonMatmulRow(),
                  ProblemOf(MatmulOp(), {{type, a}, {type, b}}, attributes));
}

class TritonRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!WhyNone().empty()) GTEST_SKIP() << WhyNone();
  }
};

TEST(TritonBuildTest, WhatIsEmbeddedIsSound) {
  const auto manifest = triton::ReadManifest(triton::EmbeddedManifest(), triton::EmbeddedCubins());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  if (manifest->unavailable.empty()) {
    EXPECT_THAT(manifest->sets, SizeIs(18));  // six ops, three types
    return;
  }
  // A build without them has the rows all the same, and they say why.
  const Problem problem = ProblemOf(GeluOp(), {{DataType::kFloat32, {5}}});
  const Implementation row = gelu::TritonGeluRow();
  EXPECT_THAT(std::string(row.supports(problem, MadeUpH200()).message()),
              StartsWith("this build has no kernels of Triton's: " + manifest->unavailable));
  EXPECT_THAT(row.variant_names(DataType::kFloat32), SizeIs(0));
}

TEST_F(TritonRowsTest, GeluTakesItsFormInBlocks) {
  const Implementation row = gelu::TritonGeluRow();
  for (const DataType type : kTypes) {
    const Problem tanh = ProblemOf(GeluOp(), {{type, {1 << 28}}});
    EXPECT_THAT(ChosenOf(row, tanh), StartsWith("tanh "));
    const Problem none =
        ProblemOf(GeluOp(), {{type, {3, 5}}}, {{"approximate", std::string("none")}});
    EXPECT_THAT(ChosenOf(row, none), StartsWith("none "));
  }
}

std::string ChosenForSoftmax(DataType type, int64_t n) {
  return ChosenOf(softmax::TritonSoftmaxRow(), ProblemOf(SoftmaxOp(), {{type, {64, n}}}));
}

std::string ChosenForLayernorm(DataType type, int64_t n) {
  return ChosenOf(norm::TritonLayernormRow(),
                  ProblemOf(LayernormOp(), {{type, {64, n}}, {type, {n}}, {type, {n}}}));
}

std::string ChosenForRmsnorm(DataType type, int64_t n) {
  return ChosenOf(norm::TritonRmsnormRow(), ProblemOf(RmsnormOp(), {{type, {64, n}}, {type, {n}}}));
}

std::string ChosenForLinear(DataType type, const Dims& x, int64_t n) {
  return ChosenOf(linear::TritonLinearRow(),
                  ProblemOf(LinearOp(), {{type, x}, {type, {n, x.back()}}, {type, {n}}}));
}

struct RowsCase {
  const char* op;
  std::string (*chosen)(DataType, int64_t n);
};
constexpr RowsCase kRowsCases[] = {{"softmax", ChosenForSoftmax},
                                   {"layernorm", ChosenForLayernorm},
                                   {"rmsnorm", ChosenForRmsnorm}};

// The chosen tile depends on measurements; these properties hold for every choice.
void ExpectRoomForRows(const RowsCase& rows) {
  SCOPED_TRACE(rows.op);
  for (const DataType type : kTypes) {
    for (const int64_t n : {1, 16, 31, 32, 33, 1024, 1025, 4096, 32767, 32768, 32769, 1 << 20}) {
      const std::string chosen = rows.chosen(type, n);
      EXPECT_EQ(absl::EndsWith(chosen, " by 16"), n % 16 == 0) << chosen << " for " << n;
      int64_t columns = 0;  // start of the name, except a loop's
      if (absl::SimpleAtoi(chosen.substr(0, chosen.find('x')), &columns)) {
        EXPECT_GE(columns, n) << chosen;
      } else {
        EXPECT_THAT(chosen, StartsWith("loop:"));
        EXPECT_GT(n, 4096) << chosen;
      }
    }
  }
}

TEST_F(TritonRowsTest, KernelsHaveRoomForTheirRows) {
  for (const RowsCase& rows : kRowsCases) ExpectRoomForRows(rows);
}

TEST_F(TritonRowsTest, ProblemsOfTheSizesOfAChoiceTakeItsTile) {
  const auto is_taken = [](const triton::Choice& choice, const std::string& chosen) {
    return absl::StrContains(absl::StrCat(" ", chosen, " "), absl::StrCat(" ", choice.tile, " "));
  };
  for (const DataType type : kTypes) {
    for (const triton::Choice& choice : (*triton::KernelsOf("gelu", type))->choices)
      EXPECT_TRUE(is_taken(choice, ChosenOf(gelu::TritonGeluRow(),
                                            ProblemOf(GeluOp(), {{type, {choice.sizes[0]}}}))))
          << choice.tile;
    for (const RowsCase& rows : kRowsCases) {
      for (const triton::Choice& choice : (*triton::KernelsOf(rows.op, type))->choices)
        EXPECT_TRUE(is_taken(choice, rows.chosen(type, choice.sizes[0])))
            << rows.op << " " << choice.tile;
    }
    for (const triton::Choice& choice : (*triton::KernelsOf("linear", type))->choices)
      EXPECT_TRUE(is_taken(
          choice, ChosenForLinear(type, {choice.sizes[0], choice.sizes[2]}, choice.sizes[1])))
          << choice.tile;
    for (const triton::Choice& choice : (*triton::KernelsOf("matmul", type))->choices) {
      const Dims a = {choice.sizes[0], choice.sizes[2]};
      const Dims b = {choice.sizes[2], choice.sizes[1]};
      // A line is for one of the precisions.
      const bool ieee = is_taken(choice, ChosenForMatmul(type, a, b));
      const bool tf32 =
          type == DataType::kFloat32 &&
          is_taken(choice, ChosenForMatmul(type, a, b, {{"precision", std::string("tf32")}}));
      EXPECT_NE(ieee, tf32) << choice.tile;
    }
  }
}

TEST_F(TritonRowsTest, SoftmaxTakesNoOtherAxisAndNoEndlessRow) {
  const Implementation row = softmax::TritonSoftmaxRow();
  const Problem columns =
      ProblemOf(SoftmaxOp(), {{DataType::kFloat32, {64, 33}}}, {{"axis", int64_t{0}}});
  EXPECT_EQ(ChosenOf(row, columns),
            "triton_softmax takes an axis whose elements are adjacent in memory; here they are 33 "
            "apart");
  const Problem endless = ProblemOf(SoftmaxOp(), {{DataType::kFloat16, {1, int64_t{1} << 31}}});
  EXPECT_THAT(ChosenOf(row, endless), HasSubstr("takes n up to 2147483647, got 2147483648"));
}

TEST_F(TritonRowsTest, MatmulTakesKernelsByLayoutAndPrecision) {
  const Dims square = {4096, 4096};
  for (const DataType type : kTypes) {
    EXPECT_THAT(ChosenForMatmul(type, square, square), EndsWith(" nn by 16"));
    EXPECT_THAT(ChosenForMatmul(type, square, square, {{"transpose_a", true}}),
                EndsWith(" tn by 16"));
    EXPECT_THAT(ChosenForMatmul(type, square, square, {{"transpose_b", true}}),
                EndsWith(" nt by 16"));
    EXPECT_THAT(
        ChosenForMatmul(type, square, square, {{"transpose_a", true}, {"transpose_b", true}}),
        EndsWith(" tt by 16"));
    EXPECT_THAT(ChosenForMatmul(type, {31, 33}, {33, 17}), EndsWith(" nn"));
  }
  const NamedAttribute tf32 = {"precision", std::string("tf32")};
  EXPECT_THAT(ChosenForMatmul(DataType::kFloat32, square, square, {tf32}),
              EndsWith(" nn tf32 by 16"));
  EXPECT_THAT(ChosenForMatmul(DataType::kFloat32, {31, 33}, {33, 17}, {tf32}),
              EndsWith(" nn tf32"));
}

TEST_F(TritonRowsTest, LinearTakesRowsOfAnyRankAndSizesThat16DoesNotDivide) {
  for (const DataType type : kTypes) {
    EXPECT_THAT(ChosenForLinear(type, {3, 5, 64}, 32), EndsWith(" by 16"));
    for (const Dims& x : {Dims{3, 5, 63}, Dims{1}, Dims{1, 1}})
      EXPECT_THAT(ChosenForLinear(type, x, 32), StartsWith("64x64x")) << x.back();
    EXPECT_THAT(ChosenForLinear(type, {64, 64}, 33), Not(EndsWith(" by 16")));
  }
}

TEST_F(TritonRowsTest, MatmulTakesBatchesThatAreEvenlyApart) {
  const DataType type = DataType::kFloat16;
  EXPECT_THAT(ChosenForMatmul(type, {3, 64, 64}, {3, 64, 64}), EndsWith(" nn by 16"));
  EXPECT_THAT(ChosenForMatmul(type, {3, 16, 5}, {3, 5, 16}), EndsWith(" nn"));
  EXPECT_EQ(ChosenForMatmul(type, {2, 1, 5, 7}, {1, 3, 7, 5}),
            "triton_matmul takes batches that are evenly apart; here they are so in 2 dimensions");
  EXPECT_THAT(ChosenForMatmul(type, {70000, 2, 3}, {70000, 3, 2}),
              HasSubstr("would take 70000 blocks in dimension 1 of its grid; the limit is 65535"));
}

TEST_F(TritonRowsTest, OtherGpusAreTold) {
  DeviceProperties device = MadeUpH200();
  device.architecture = 75;
  device.compute_capability = "7.5";
  const Problem problem = ProblemOf(GeluOp(), {{DataType::kFloat32, {5}}});
  EXPECT_THAT(std::string(gelu::TritonGeluRow().supports(problem, device).message()),
              HasSubstr("not compiled for cuda:0's compute capability 7.5"));
}

// A plan is made without a device, and only launching it needs one.
TEST_F(TritonRowsTest, WithoutADriverLaunchingSaysSo) {
  if (TestGpuProperties() != nullptr) GTEST_SKIP() << "there is a GPU";
  const Problem problem = ProblemOf(GeluOp(), {{DataType::kFloat32, {5}}});
  const auto plan = gelu::TritonGeluRow().plan(problem, {.device = &MadeUpH200()});
  ASSERT_TRUE(plan.ok()) << plan.status();
  alignas(256) float x[5] = {};
  alignas(256) float y[5] = {};
  EXPECT_FALSE((*plan)->Enqueue({{x}, {y}}, {}).ok());
  EXPECT_FALSE((*plan)->shape().ok());
}

// ---- on a GPU

class TritonLoaderTest : public TritonRowsTest {
 protected:
  void SetUp() override {
    TritonRowsTest::SetUp();
    if (IsSkipped()) return;
    if (TestGpuProperties() == nullptr) GTEST_SKIP() << "there is no GPU";
    const auto set = triton::KernelsOf("gelu", DataType::kFloat32);
    ASSERT_TRUE(set.ok()) << set.status();
    const triton::Image* const image =
        triton::ImageFor((*set)->kernels[0], TestGpuProperties()->architecture);
    if (image == nullptr) GTEST_SKIP() << "this build has no kernels for this GPU";
    image_ = *image;
  }

  std::string Refusal() const {
    const absl::Status status = triton::Loader::Get().Load(image_).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  triton::Image image_;
};

TEST_F(TritonLoaderTest, CodeIsLoadedOnce) {
  const auto kernel = triton::Loader::Get().Load(image_);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(*triton::Loader::Get().Load(image_), *kernel);
}

TEST_F(TritonLoaderTest, OtherParametersThanDescribedAreRefused) {
  image_.parameter_bytes.pop_back();
  EXPECT_THAT(Refusal(), HasSubstr("kernel gelu has parameters of 8, 8, 8, 8"));
  image_.parameter_bytes.insert(image_.parameter_bytes.end(), 2, sizeof(void*));
  EXPECT_THAT(Refusal(), HasSubstr("its manifest says 8, 8, 8, 8, 8, 8"));
}

TEST_F(TritonLoaderTest, OtherBlocksThanCompiledForAreRefused) {
  image_.threads = 1024;
  cudaFuncAttributes attributes;
  const auto right = triton::Loader::Get().Load(
      *triton::ImageFor((*triton::KernelsOf("gelu", DataType::kFloat32))->kernels[0],
                        TestGpuProperties()->architecture));
  ASSERT_TRUE(right.ok()) << right.status();
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, static_cast<const void*>(*right)), cudaSuccess);
  if (attributes.maxThreadsPerBlock == 1024)
    GTEST_SKIP() << "this driver does not tell for what blocks a kernel was compiled";
  EXPECT_THAT(Refusal(), HasSubstr("takes blocks of 128 threads at most; its manifest says 1024"));
}

TEST_F(TritonLoaderTest, MissingKernelsAreNamed) {
  image_.entry = "gelu_with_another_name";
  EXPECT_THAT(Refusal(), HasSubstr("looking for kernel gelu_with_another_name"));
}

}  // namespace
}  // namespace warpcall::testing
