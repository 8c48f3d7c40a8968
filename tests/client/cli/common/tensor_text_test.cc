#include "client/cli/common/tensor_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParseDataTypeTest, TakesEverySpellingInEitherCase) {
  for (const char* text : {"float32", "f32", "fp32", "FP32", "Float32"})
    EXPECT_EQ(ParseDataType(text).value(), DataType::kFloat32) << text;
  for (const char* text : {"float16", "f16", "fp16", "half", "FP16"})
    EXPECT_EQ(ParseDataType(text).value(), DataType::kFloat16) << text;
  for (const char* text : {"bfloat16", "bf16", "BF16"})
    EXPECT_EQ(ParseDataType(text).value(), DataType::kBFloat16) << text;
  for (const DataType type : kDataTypes) EXPECT_EQ(ParseDataType(DataTypeName(type)).value(), type);
}

TEST(ParseDataTypeTest, RefusesOthersAndSaysWhatIsTaken) {
  for (const char* text : {"", "f", "float", "float64", "f64", "f8", "int8", "f32 "})
    EXPECT_THAT(std::string(ParseDataType(text).status().message()),
                AllOf(HasSubstr(std::string("'") + text + "'"), HasSubstr("float32 (f32, fp32)"),
                      HasSubstr("float16 (f16, fp16, half)"), HasSubstr("bfloat16 (bf16)")));
  EXPECT_THAT(std::string(ParseDataType("flaot32").status().message()),
              HasSubstr("did you mean float32?"));
  EXPECT_THAT(std::string(ParseDataType("float64").status().message()),
              ::testing::Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace warpcall::cli
