#include "kernels/cpu/bf16_pairs.h"

#include <cpuid.h>

namespace warpcall::cpu {
namespace {

constexpr uint32_t kOsxsave = 1u << 27;
constexpr uint32_t kLeafOfFeatures = 7;
constexpr uint32_t kVectors = 1u << 16 | 1u << 30 | 1u << 31;
constexpr uint32_t kBf16 = 1u << 5;
constexpr uint64_t kVectorState = 0xE6;

}  // namespace

uint64_t ReadXcr0() {
  uint32_t a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsxsave) == 0) return 0;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

VectorFacts ReadVectorFacts() {
  VectorFacts facts;
  uint32_t a, b, c, d;
  facts.leaf_max = __get_cpuid_max(0, nullptr);
  if (__get_cpuid_count(kLeafOfFeatures, 0, &a, &b, &c, &d) != 0) {
    facts.subleaf_max = a;
    facts.features = b;
  }
  if (__get_cpuid_count(kLeafOfFeatures, 1, &a, &b, &c, &d) != 0) facts.features1 = a;
  facts.xcr0 = ReadXcr0();
  return facts;
}

bool HasBf16Pairs(const VectorFacts& facts) {
  return facts.leaf_max >= kLeafOfFeatures && facts.subleaf_max >= 1 &&
         (facts.features & kVectors) == kVectors && (facts.features1 & kBf16) != 0 &&
         (facts.xcr0 & kVectorState) == kVectorState;
}

}  // namespace warpcall::cpu
