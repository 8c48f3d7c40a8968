#include "kernels/cpu/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/bf16_pairs.h"

namespace warpcall::cpu {
namespace {

// Intel SDM volume 1, chapter 18: AMX's flags, its palettes and its state.
constexpr uint32_t kLeafOfTiles = 0x1D;
constexpr uint32_t kBf16 = 1u << 22;
constexpr uint32_t kTile = 1u << 24;
constexpr uint32_t kInt8 = 1u << 25;
constexpr int kTileData = 18;
constexpr uint64_t kTileState = uint64_t{1} << 17 | uint64_t{1} << kTileData;

// Linux's arch_prctl, Documentation/arch/x86/xstate.rst.
constexpr int kGetPermission = 0x1022;
constexpr int kRequestPermission = 0x1023;

bool Permitted() {
  syscall(SYS_arch_prctl, kRequestPermission, kTileData);  // the next call reads the result
  uint64_t granted = 0;
  return syscall(SYS_arch_prctl, kGetPermission, &granted) == 0 && (granted >> kTileData & 1) != 0;
}

}  // namespace

AmxFacts ReadAmxFacts() {
  AmxFacts facts;
  uint32_t a, b, c, d;
  facts.leaf_max = __get_cpuid_max(0, nullptr);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) facts.features = d;
  if (!ShowsAmx(facts)) return facts;
  if (__get_cpuid_count(kLeafOfTiles, 0, &a, &b, &c, &d) != 0) facts.palette_max = a;
  facts.xcr0 = ReadXcr0();
  facts.permitted = Permitted();
  return facts;
}

bool ShowsAmx(const AmxFacts& facts) { return (facts.features & (kBf16 | kTile | kInt8)) != 0; }

bool TilesWork(const AmxFacts& facts) {
  return facts.leaf_max >= kLeafOfTiles && facts.palette_max > 0 &&
         (facts.xcr0 & kTileState) == kTileState && facts.permitted;
}

bool HasBf16Tiles(const AmxFacts& facts) {
  return (facts.features & kBf16) != 0 && (facts.features & kTile) != 0 && TilesWork(facts);
}

}  // namespace warpcall::cpu
