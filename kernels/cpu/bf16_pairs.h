// Detects AVX512_BF16, which multiplies pairs of bfloat16 in vectors of 64 bytes. Highway has no
// target for it.
#pragma once

#include <cstdint>

namespace warpcall::cpu {

// Facts read from the processor and the system (Intel SDM volume 2, CPUID).
struct VectorFacts {
  uint32_t leaf_max = 0;     // leaf 0, EAX
  uint32_t features = 0;     // leaf 7, EBX: bit 16 AVX512F, 30 AVX512BW, 31 AVX512VL
  uint32_t subleaf_max = 0;  // leaf 7, EAX
  uint32_t features1 = 0;  // leaf 7, subleaf 1, EAX: bit 5 AVX512_BF16; nothing beyond subleaf_max
  uint64_t xcr0 = 0;       // bits 1, 2, 5, 6 and 7: the system keeps vectors and masks
};

VectorFacts ReadVectorFacts();

bool HasBf16Pairs(const VectorFacts& facts);

// Returns the states that the system keeps; 0 if the system does not report them.
uint64_t ReadXcr0();

}  // namespace warpcall::cpu
