// The processor's and the system's support of AMX. A hypervisor may show AMX's flags and hide the
// leaf that describes its palettes; then the first tile instruction ends the process.
#pragma once

#include <cstdint>

namespace warpcall::cpu {

struct AmxFacts {
  uint32_t leaf_max = 0;     // CPUID leaf 0, EAX
  uint32_t features = 0;     // CPUID leaf 7, EDX: bit 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8
  uint32_t palette_max = 0;  // CPUID leaf 0x1D, EAX; means nothing beyond leaf_max
  uint64_t xcr0 = 0;         // bits 17 and 18: the system keeps the tiles' state
  bool permitted = false;    // the system lets this process use the tiles' state
};

// Asks the system for its permission, which holds for every thread of the process.
AmxFacts ReadAmxFacts();

// Returns true if the processor shows any of AMX's flags.
bool ShowsAmx(const AmxFacts& facts);

// Returns true if tiles can be used, provided that the flags are there.
bool TilesWork(const AmxFacts& facts);

// Returns true if tiles multiply bfloat16.
bool HasBf16Tiles(const AmxFacts& facts);

}  // namespace warpcall::cpu
