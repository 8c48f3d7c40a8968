#include "proto/common/suggest.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

const std::vector<std::string> kKernels = {"identity", "gelu",      "softmax", "matmul",
                                           "linear",   "layernorm", "rmsnorm", "fused"};

TEST(NearestTest, FindsWhatWasMisspelt) {
  for (const auto& [text, name] : std::vector<std::pair<std::string, std::string>>{
           {"sofmax", "softmax"},    // a letter left out
           {"sotfmax", "softmax"},   // two swapped
           {"softmaxx", "softmax"},  // one added
           {"sopftmac", "softmax"},  // two slips in eight letters
           {"SoftMax", "softmax"},   // the case
           {"gleu", "gelu"},
           {"layer_norm", "layernorm"},
           {"matmal", "matmul"},
           {"layer", "layernorm"},      // its beginning
           {"fused_softmax", "fused"},  // a longer one
       })
    EXPECT_EQ(Nearest(text, kKernels), name) << text;
}

TEST(NearestTest, FindsNothingWhereNothingIsNear) {
  for (const char* text : {"", "x", "conv", "attention", "fly", "norm", "so"})
    EXPECT_EQ(Nearest(text, kKernels), "") << text;
  EXPECT_EQ(Nearest("sofmax", {}), "");
  EXPECT_EQ(Nearest(std::string(1 << 20, 's'), kKernels), "");
  // More than one begins so.
  EXPECT_EQ(Nearest("lin", {"linear", "lines"}), "");
  EXPECT_EQ(Nearest("topology", {"top"}), "");
}

TEST(NearestTest, DigitsTellNamesApart) {
  const std::vector<std::string> types = {"float32", "f32", "float16", "f16", "bfloat16"};
  for (const char* text : {"float64", "f64", "int8", "f8"}) EXPECT_EQ(Nearest(text, types), "");
  EXPECT_EQ(Nearest("float23", types), "float32");
  EXPECT_EQ(Nearest("bflot16", types), "bfloat16");
}

TEST(DidYouMeanTest, IsAPartOfAMessageOrNothing) {
  EXPECT_EQ(DidYouMean("sofmax", kKernels), "; did you mean softmax?");
  EXPECT_EQ(DidYouMean("convolution", kKernels), "");
}

}  // namespace
}  // namespace warpcall
