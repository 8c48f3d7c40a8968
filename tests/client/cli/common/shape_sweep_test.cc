#include "client/cli/common/shape_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Texts(const std::string& shape, Braces braces = Braces::kCombined) {
  const auto points = ParseShapeSweep(shape, braces);
  EXPECT_TRUE(points.ok()) << points.status();
  std::vector<std::string> texts;
  if (points.ok())
    for (const ShapePoint& point : *points) texts.push_back(point.text);
  return texts;
}

std::string ErrorOf(const std::string& shape, Braces braces = Braces::kCombined) {
  const auto points = ParseShapeSweep(shape, braces);
  EXPECT_EQ(points.status().code(), absl::StatusCode::kInvalidArgument) << shape;
  return std::string(points.status().message());
}

std::vector<client::KernelInfo> Kernels() {
  std::vector<client::KernelInfo> kernels(6);
  kernels[0].name = "softmax";
  kernels[0].input_names = {"x"};
  kernels[1].name = "matmul";
  kernels[1].input_names = {"a", "b"};
  kernels[2].name = "fma";
  kernels[2].input_names = {"a", "b", "c"};
  kernels[3].name = "fused";
  kernels[3].input_names = {"x0", "x1", "x2"};
  kernels[3].inputs_min = 1;
  using client::OperandRole;
  kernels[4].name = "rmsnorm";
  kernels[4].input_names = {"x", "weight"};
  kernels[4].input_roles = {OperandRole::kSplit, OperandRole::kShared};
  kernels[5].name = "linear";
  kernels[5].input_names = {"x", "weight", "bias"};
  kernels[5].input_roles = {OperandRole::kSplit, OperandRole::kShared, OperandRole::kShared};
  return kernels;
}

absl::StatusOr<Shapes> Fit(const std::string& shape, const std::string& kernel,
                           const AttributeMap& attributes = {}) {
  return InputShapes(ParseShapeSweep(shape).value().at(0), kernel, attributes, Kernels());
}

TEST(ShapeSweepTest, WithoutBracesIsOnePoint) {
  const auto points = ParseShapeSweep("16384x0x3").value();
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].text, "16384x0x3");
  EXPECT_THAT(points[0].shapes, ElementsAre(Shape{16384, 0, 3}));
  EXPECT_THAT(ParseShapeSweep("8x128x64,64x256").value()[0].shapes,
              ElementsAre(Shape{8, 128, 64}, Shape{64, 256}));
}

TEST(ShapeSweepTest, GeometricSweepsEndAtOrBeforeTheirEnd) {
  EXPECT_THAT(Texts("1024x{256..2048:x2}"),
              ElementsAre("1024x256", "1024x512", "1024x1024", "1024x2048"));
  EXPECT_THAT(Texts("{1..100:x10}"), ElementsAre("1", "10", "100"));
  EXPECT_THAT(Texts("{1..99:x10}"), ElementsAre("1", "10"));
  EXPECT_THAT(Texts("{5..5:x2}"), ElementsAre("5"));
  // The next value would overflow.
  EXPECT_EQ(Texts("{1..9223372036854775807:x2}").size(), 63u);
}

TEST(ShapeSweepTest, ArithmeticSweepsAndLists) {
  EXPECT_THAT(Texts("{1024..4096:+1024}"), ElementsAre("1024", "2048", "3072", "4096"));
  EXPECT_THAT(Texts("{0..5:+2}x3"), ElementsAre("0x3", "2x3", "4x3"));
  EXPECT_THAT(Texts("{9223372036854775806..9223372036854775807:+2}").size(), 1u);
  EXPECT_THAT(Texts("7x{256,512,4096}"), ElementsAre("7x256", "7x512", "7x4096"));
  EXPECT_THAT(Texts("{3}"), ElementsAre("3"));
}

TEST(ShapeSweepTest, SeveralBracesGiveAllCombinationsTheLastFastest) {
  EXPECT_THAT(Texts("{1,2}x3x{4..8:x2}"), ElementsAre("1x3x4", "1x3x8", "2x3x4", "2x3x8"));
  EXPECT_THAT(Texts("2x{1,3},{1,3}x4"), ElementsAre("2x1,1x4", "2x1,3x4", "2x3,1x4", "2x3,3x4"));
}

TEST(ShapeSweepTest, ZippedBracesGiveTheirValuesInTurn) {
  EXPECT_THAT(Texts("{1,2,3}x7x{10..40:x2}", Braces::kZipped),
              ElementsAre("1x7x10", "2x7x20", "3x7x40"));
  EXPECT_THAT(Texts("{1,2}x{3,4},{5,6}", Braces::kZipped), ElementsAre("1x3,5", "2x4,6"));
  EXPECT_THAT(Texts("8x4", Braces::kZipped), ElementsAre("8x4"));
  // Many values of which each counts once.
  EXPECT_EQ(Texts("{1..256:+1}x{1..256:+1}", Braces::kZipped).size(), 256u);
  EXPECT_EQ(ErrorOf("{1,2,3}x7x{1,2}", Braces::kZipped),
            "'--shape {1,2,3}x7x{1,2}': has braces of 3 and of 2 values; with --zip all have the "
            "same number");
}

TEST(ShapeSweepTest, ErrorsNameTheTextAndWhatIsAllowed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "'': a dimension is 0 to 9223372036854775807"},
      {"12a", "'12a': a dimension"},
      {"-3", "'-3': a dimension"},
      {"3x", "'': a dimension"},
      {"3,,4", "'': a dimension"},
      {"9223372036854775808", "'9223372036854775808': a dimension"},
      {"{}", "'{}': a dimension"},
      {"{1,}", "'{1,}': a dimension"},
      {"a{1,2}", "'a{1,2}': a dimension"},
      {"{1..4}", "'{1..4}': a dimension"},
      {"{1..4:2}", "'{1..4:2}': a dimension"},
      {"{1..4:x}", "'{1..4:x}': a dimension"},
      {"{1..:x2}", "'{1..:x2}': a dimension"},
      {"{..4:x2}", "'{..4:x2}': a dimension"},
      {"{8..4:x2}", "begins at 8, above its end, 4"},
      {"{0..4:x2}", "with x a sweep begins at 1 or more"},
      {"{1..4:x1}", "its factor is 2 or more"},
      {"{1..4:+0}", "the step is 0; it must be 1 or more"},
      {"{1,2", "'{' without '}'"},
      {"1}", "'}' without '{'"},
      {"{1,{2,3}}", "'{' within '{'"},
      {"{1..1000:+1}", "has more than 256 values"},
      {"{0..9223372036854775807:+1}", "has more than 256 values"},
      {"{1..17:+1}x{1..17:+1}", "has 289 points; at most 256 are allowed"},
      {"{1..256:+1}x{1..256:+1}x{1..256:+1}x{1..256:+1}x{1..256:+1}x{1..256:+1}x{1..256:+1}"
       "x{1..256:+1}x{1..256:+1}",
       "over 4 billion points"},
  };
  for (const auto& [shape, message] : kCases) {
    EXPECT_THAT(ErrorOf(shape), HasSubstr(std::string("'--shape ") + shape + "': ")) << shape;
    EXPECT_THAT(ErrorOf(shape), HasSubstr(message)) << shape;
  }
}

TEST(ShapeSweepTest, ExactlyTheLimitIsTaken) {
  EXPECT_EQ(Texts("{1..16:+1}x{1..16:+1}").size(), 256u);
  EXPECT_EQ(Texts("{1..256:+1}").size(), 256u);
}

TEST(InputShapesTest, OneInputTakesTheShape) {
  EXPECT_THAT(Fit("2x3x4", "softmax").value(), ElementsAre(Shape{2, 3, 4}));
}

TEST(InputShapesTest, MnkIsBothMatricesAsTheyAreStored) {
  EXPECT_THAT(Fit("2x3x4", "matmul").value(), ElementsAre(Shape{2, 4}, Shape{4, 3}));
  EXPECT_THAT(Fit("2x3x4", "matmul", {{"transpose_a", true}}).value(),
              ElementsAre(Shape{4, 2}, Shape{4, 3}));
  EXPECT_THAT(Fit("2x3x4", "matmul", {{"transpose_b", true}}).value(),
              ElementsAre(Shape{2, 4}, Shape{3, 4}));
  EXPECT_THAT(Fit("2x3x4", "matmul", {{"transpose_a", true}, {"transpose_b", true}}).value(),
              ElementsAre(Shape{4, 2}, Shape{3, 4}));
}

TEST(InputShapesTest, ExplicitInputsAreTakenAsTheyAre) {
  EXPECT_THAT(Fit("8x128x64,64x256", "matmul", {{"transpose_a", true}}).value(),
              ElementsAre(Shape{8, 128, 64}, Shape{64, 256}));
  EXPECT_THAT(Fit("5", "fma").value(), ElementsAre(Shape{5}, Shape{5}, Shape{5}));
  // fused has as many inputs as its attributes say, which only the server knows.
  EXPECT_THAT(Fit("2x3x4", "fused").value(), ElementsAre(Shape{2, 3, 4}));
  EXPECT_THAT(Fit("2x3,3", "fused").value(), ElementsAre(Shape{2, 3}, Shape{3}));
}

TEST(InputShapesTest, AKernelThatIsNotListedIsLeftToTheServer) {
  EXPECT_THAT(Fit("2x3x4", "conv").value(), ElementsAre(Shape{2, 3, 4}));
}

TEST(InputShapesTest, ShapesThatDoNotFitSayWhatDoes) {
  for (const char* shape : {"2x3", "2x3x4x5", "2x3,3x4,4x5"}) {
    const auto shapes = Fit(shape, "matmul");
    EXPECT_EQ(shapes.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(shapes.status().message()),
                HasSubstr("matmul takes 2 inputs: a, b; give MxNxK or a shape for each"));
    EXPECT_THAT(std::string(shapes.status().message()), HasSubstr(shape));
  }
  EXPECT_FALSE(Fit("2,3", "softmax").ok());
  EXPECT_FALSE(Fit("2,3", "fma").ok());
  EXPECT_THAT(Fit("2,3,4,5", "fused").status().message(), HasSubstr("takes 1 to 3 inputs"));
}

TEST(InputShapesTest, WeightsHaveShapesOfTheirOwn) {
  EXPECT_THAT(Fit("4x8,8", "rmsnorm").value(), ElementsAre(Shape{4, 8}, Shape{8}));
  EXPECT_THAT(Fit("4x8", "rmsnorm").value(), ElementsAre(Shape{4, 8}, Shape{8}));
  EXPECT_THAT(Fit("2x3x4", "rmsnorm").value(), ElementsAre(Shape{2, 3, 4}, Shape{4}));
  // A single row may be shaped like its weights; if it may not, the server says so.
  EXPECT_THAT(Fit("8", "rmsnorm").value(), ElementsAre(Shape{8}, Shape{8}));
  EXPECT_EQ(Fit("8,8,8", "rmsnorm").status().message(),
            "'--shape 8,8,8': rmsnorm takes 2 inputs: x, weight; give the shape of the first or a "
            "shape for each, with commas between them");
}

TEST(InputShapesTest, MnkIsLinearsInputAndItsWeights) {
  EXPECT_THAT(Fit("2x3x4", "linear").value(), ElementsAre(Shape{2, 4}, Shape{3, 4}, Shape{3}));
  EXPECT_THAT(Fit("2x4,3x4,3", "linear").value(), ElementsAre(Shape{2, 4}, Shape{3, 4}, Shape{3}));
  for (const char* shape : {"8", "4x8", "4x8,8x8"})
    EXPECT_THAT(
        Fit(shape, "linear").status().message(),
        HasSubstr("linear takes 3 inputs: x, weight, bias; give MxNxK or a shape for each,"));
}

}  // namespace
}  // namespace warpcall::cli
