#include "server/judge/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/check/cases.h"
#include "kernels/registry.h"

namespace warpcall::judge {
namespace {

using ::testing::HasSubstr;

class ProblemsTest : public ::testing::Test {
 protected:
  ProblemsTest() {
    AddCpuKernels(&registry_);
    gpu_.kind = DeviceKind::kCuda;
    gpu_.multiprocessors = 132;
  }

  absl::StatusOr<std::vector<Problem>> Draw(absl::string_view op, absl::string_view rest,
                                            uint64_t seed = 1) {
    manifest_ = manifest::ReadKernelManifest(
        absl::StrCat(R"({"name": "k", "op": ")", op,
                     R"(", "code": {"kind": "cuda", "entry": "k"}, "args": ["zero:u64"],
                         "launch": {"grid": [1], "block": [32]}, )",
                     rest, "}"),
        [&](absl::string_view name) { return (*registry_.Find(name))->op; });
    EXPECT_TRUE(manifest_.ok()) << manifest_.status();
    return DrawProblems(*manifest_, gpu_, seed);
  }

  Registry registry_;
  DeviceProperties gpu_;
  absl::StatusOr<manifest::KernelManifest> manifest_;
};

TEST_F(ProblemsTest, ExamplesComeFirstAndOthersFit) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto drawn = Draw("softmax", R"("types": ["float32", "bfloat16"],
        "requires": ["cols % 8 == 0", "cols <= 4096"], "examples": [[[64, 512]], [[3, 1024]]])",
                            seed);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    ASSERT_EQ(drawn->size(), static_cast<size_t>(kProblems));
    EXPECT_EQ(InputsToString((*drawn)[0]), "float32[64,512]");
    EXPECT_EQ(InputsToString((*drawn)[1]), "bfloat16[3,1024]");
    std::set<std::string> distinct;
    for (const Problem& problem : *drawn) {
      EXPECT_TRUE(CheckTaken(*manifest_, problem, gpu_).ok()) << InputsToString(problem);
      distinct.insert(InputsToString(problem));
    }
    EXPECT_EQ(distinct.size(), drawn->size());
  }
}

// Sizes that depend on each other stay so.
// However many examples an author gives, and whatever the seed.
TEST_F(ProblemsTest, SomeAreNotTheAuthorsAndSomeOfTheseAreOdd) {
  std::string examples = "[[64, 512]]";
  for (int i = 1; i < 9; ++i) absl::StrAppend(&examples, ", [[", 64 + i, ", 512]]");
  for (const std::string& listed : {std::string("[[64, 512]]"), examples})
    for (const absl::string_view types : {R"("float32")", R"("float32", "float16", "bfloat16")"})
      for (uint64_t seed = 0; seed < 50; ++seed) {
        const auto drawn =
            Draw("softmax",
                 absl::StrCat(R"("types": [)", types, R"(], "examples": [)", listed, "]"), seed);
        ASSERT_TRUE(drawn.ok()) << drawn.status();
        EXPECT_EQ(drawn->size(), listed.size() > 20 ? 12u : 7u);
        std::set<DataType> odd;
        for (size_t i = manifest_->examples.size(); i < drawn->size(); ++i) {
          const TensorSpec& input = (*drawn)[i].inputs[0];
          if (absl::c_all_of(input.dims, [](int64_t dim) { return dim % 2 == 1; }))
            odd.insert(input.data_type);
        }
        EXPECT_EQ(odd.size(), manifest_->types.size()) << seed;
      }
}

TEST_F(ProblemsTest, EveryOpHasProblems) {
  for (const Kernel& kernel : registry_.kernels()) {
    if (std::string(kernel.op->name) == "fused") continue;  // its expression is the manifest's
    const auto drawn = Draw(kernel.op->name, R"("types": ["float32"])");
    ASSERT_TRUE(drawn.ok()) << kernel.op->name << drawn.status();
    EXPECT_EQ(drawn->size(), static_cast<size_t>(kProblems)) << kernel.op->name;
  }
  const auto fused = Draw("fused", R"("types": ["float32"], "attributes": {"expression": "x0 + x1"},
                       "examples": [[[32, 100], [100]]])");
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(fused->size(), static_cast<size_t>(kProblems));
}

TEST_F(ProblemsTest, SizesFollowFromTheSeed) {
  const auto first = Draw("gelu", R"("types": ["float32"])", 1);
  const auto again = Draw("gelu", R"("types": ["float32"])", 1);
  const auto other = Draw("gelu", R"("types": ["float32"])", 2);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
}

// Whoever knows the op's cases does not know what comes.
TEST_F(ProblemsTest, MostSizesAreThoseOfNoKnownCase) {
  int known = 0;
  int unknown = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto drawn = Draw("gelu", R"("types": ["float32"])", seed);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    for (const Problem& problem : *drawn) {
      const bool is_known = absl::c_any_of(manifest_->op->cases().cases, [&](const Case& each) {
        return each.shapes == std::vector<Dims>{problem.inputs[0].dims};
      });
      ++(is_known ? known : unknown);
    }
  }
  EXPECT_GT(unknown, 20 * known);
}

TEST_F(ProblemsTest, AnExampleThatItDoesNotTakeIsRefused) {
  const auto drawn = Draw("gelu", R"("types": ["float32"], "requires": ["cols == 5"],
                                     "examples": [[[5]], [[6]]])");
  ASSERT_TRUE(absl::IsInvalidArgument(drawn.status()));
  EXPECT_THAT(drawn.status().message(), HasSubstr("examples[1]: the kernel requires cols == 5"));
}

TEST_F(ProblemsTest, RequirementsThatNothingFitsAreSaid) {
  const auto drawn = Draw("gelu", R"("types": ["float32"], "requires": ["cols == 123456789"])");
  ASSERT_TRUE(absl::IsUnimplemented(drawn.status()));
  EXPECT_THAT(drawn.status().message(), HasSubstr("cols == 123456789"));
}

}  // namespace
}  // namespace warpcall::judge
