// Use of bfloat16 pairs, by recorded facts of processors and systems.
#include "kernels/cpu/bf16_pairs.h"

#include <gtest/gtest.h>

#include "kernels/cpu/amx.h"
#include "kernels/matmul/matmul_simd_pairs.h"

namespace warpcall::cpu {
namespace {

// An EPYC of the Zen 5 kind, under a hypervisor.
constexpr VectorFacts kZen5 = {
    .leaf_max = 0x1C, .features = 0xF1BF07AB, .subleaf_max = 1, .features1 = 0x30, .xcr0 = 0xE7};
// A Xeon of the Sapphire Rapids kind, Linux 6.
constexpr VectorFacts kSapphireRapids = {.leaf_max = 0x20,
                                         .features = 0xF3BFBFEB,
                                         .subleaf_max = 2,
                                         .features1 = 0x1C30,
                                         .xcr0 = 0x602E7};
// A Xeon of the Skylake kind, whose leaf 7 has no subleaf: a read of one gives what the processor
// likes.
constexpr VectorFacts kSkylake = {
    .leaf_max = 0x16, .features = 0xD39FFFFB, .subleaf_max = 0, .features1 = 0x20, .xcr0 = 0x2E7};

TEST(Bf16PairsTest, ProcessorsThatHaveThem) {
  EXPECT_TRUE(HasBf16Pairs(kZen5));
  EXPECT_TRUE(HasBf16Pairs(kSapphireRapids));
}

TEST(Bf16PairsTest, ProcessorsThatDoNot) {
  EXPECT_FALSE(HasBf16Pairs(kSkylake));
  EXPECT_FALSE(HasBf16Pairs({}));
  VectorFacts ice_lake = kSapphireRapids;  // a subleaf, without the flag
  ice_lake.features1 = 0;
  EXPECT_FALSE(HasBf16Pairs(ice_lake));
  VectorFacts old_leaves = kZen5;
  old_leaves.leaf_max = 6;
  EXPECT_FALSE(HasBf16Pairs(old_leaves));
}

// A hypervisor may hide them.
TEST(Bf16PairsTest, TheOtherInstructionsInUseHaveToBeThereToo) {
  for (const int bit : {16, 30, 31}) {
    VectorFacts facts = kZen5;
    facts.features &= ~(1u << bit);
    EXPECT_FALSE(HasBf16Pairs(facts)) << bit;
  }
}

TEST(Bf16PairsTest, StateThatTheSystemDoesNotKeepIsNotUsed) {
  for (const int bit : {1, 2, 5, 6, 7}) {
    VectorFacts facts = kZen5;
    facts.xcr0 &= ~(uint64_t{1} << bit);
    EXPECT_FALSE(HasBf16Pairs(facts)) << bit;
  }
}

// On whatever machine this is: a compiler's own look at it agrees.
TEST(Bf16PairsTest, TheMachineAtHandIsRead) {
  EXPECT_EQ(HasBf16Pairs(ReadVectorFacts()), __builtin_cpu_supports("avx512bf16") != 0 &&
                                                 __builtin_cpu_supports("avx512bw") != 0 &&
                                                 __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(matmul::pairs::Available(), HasBf16Pairs(ReadVectorFacts()));
}

// The Sapphire Rapids above; onednn_test covers hypervisors' changes to it.
TEST(Bf16TilesTest, NeedTheirFlagsAndTilesThatWork) {
  const AmxFacts facts = {.leaf_max = 0x20,
                          .features = 0xFFDD4432,
                          .palette_max = 1,
                          .xcr0 = 0x602E7,
                          .permitted = true};
  EXPECT_TRUE(HasBf16Tiles(facts));
  for (const int bit : {22, 24}) {
    AmxFacts lacking = facts;
    lacking.features &= ~(1u << bit);
    EXPECT_FALSE(HasBf16Tiles(lacking)) << bit;
  }
  AmxFacts hidden = facts;
  hidden.leaf_max = 0x1C;
  EXPECT_FALSE(HasBf16Tiles(hidden));
  AmxFacts refused = facts;
  refused.permitted = false;
  EXPECT_FALSE(HasBf16Tiles(refused));
  EXPECT_FALSE(HasBf16Tiles({}));
}

}  // namespace
}  // namespace warpcall::cpu
