// oneDNN's instruction-set limit for recorded facts of processors and hypervisors.
#include "kernels/cpu/onednn_isa.h"

#include <gtest/gtest.h>

#include "kernels/cpu/amx.h"

namespace warpcall::onednn {
namespace {

using cpu::AmxFacts;
using cpu::ReadAmxFacts;

constexpr auto kWithoutAmx = dnnl::cpu_isa::avx512_core_bf16;

// A Xeon of the Sapphire Rapids kind, Linux 6.
constexpr AmxFacts kSapphireRapids = {
    .leaf_max = 0x20, .features = 0xFFDD4432, .palette_max = 1, .xcr0 = 0x602E7, .permitted = true};

TEST(OnednnIsaTest, AmxThatIsFullyThereIsUsed) {
  EXPECT_EQ(IsaLimit(kSapphireRapids, ""), std::nullopt);
  EXPECT_EQ(IsaLimit(kSapphireRapids, "AVX2"), std::nullopt);
}

// A hypervisor whose last leaf is 0x1C: a leaf beyond that reads as the last one, or as 0.
TEST(OnednnIsaTest, AmxWithoutItsLeafIsNotUsed) {
  AmxFacts facts = kSapphireRapids;
  facts.leaf_max = 0x1C;
  for (const uint32_t read : {0u, 1u}) {
    facts.palette_max = read;
    EXPECT_EQ(IsaLimit(facts, ""), kWithoutAmx);
  }
}

TEST(OnednnIsaTest, AmxWithoutAPaletteIsNotUsed) {
  AmxFacts facts = kSapphireRapids;
  facts.palette_max = 0;
  EXPECT_EQ(IsaLimit(facts, ""), kWithoutAmx);
}

TEST(OnednnIsaTest, AmxThatTheSystemRefusesIsNotUsed) {
  AmxFacts refused = kSapphireRapids;
  refused.permitted = false;
  EXPECT_EQ(IsaLimit(refused, ""), kWithoutAmx);
  AmxFacts not_kept = kSapphireRapids;
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
  AmxFacts facts = kSapphireRapids;
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
