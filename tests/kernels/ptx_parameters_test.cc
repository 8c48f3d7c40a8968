#include "kernels/compiled/ptx_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall::compiled {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As NVRTC 13 writes it.
constexpr char kPtx[] = R"(
.version 9.0
.target sm_90a
	// .globl	scale
.visible .entry scale_twice()
{
	ret;
}
.visible .entry scale(
	.param .u64 .ptr .align 1 scale_param_0,
	.param .u32 scale_param_1,
	.param .f32 scale_param_2,
	.param .align 8 .b8 scale_param_3[24]
)
.maxntid 256
{
	ret;
}
)";

TEST(PtxParametersTest, AreThoseOfTheKernel) {
  EXPECT_THAT(PtxParametersOf(kPtx, "scale").value(),
              ElementsAre(PtxParameter{"u64", 8}, PtxParameter{"u32", 4}, PtxParameter{"f32", 4},
                          PtxParameter{"b8", 24}));
  EXPECT_THAT(PtxParametersOf(kPtx, "scale_twice").value(), IsEmpty());
}

TEST(PtxParametersTest, OtherTextIsRefused) {
  for (const char* const text :
       {"", ".entry", ".entry f", ".entry f(", ".entry scale_more()", ".entry f(.param)",
        ".entry f(.param .u64 a,)", ".entry f(.param .b8 a[0])", ".entry f(.param .b8 a[40000])",
        ".entry f(.param .b8 a[", ".entry f(.param .u0 a)", ".entry f(.param .u999 a)"})
    EXPECT_TRUE(absl::IsInternal(PtxParametersOf(text, "f").status())) << text;
}

}  // namespace
}  // namespace warpcall::compiled
