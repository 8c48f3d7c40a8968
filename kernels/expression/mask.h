// Decides which elements dropout keeps, equally in every implementation. The decision depends on
// the problem's seed, on the call's index among the text's calls of dropout, and on the element's
// place in dropout's argument (row-major, by the argument's own shape).
//
// Word `place % 4` of Philox 4x32-10 (J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", 2011) decides: its counter is {low and high half of place / 4, the
// call, 0}, its key {low and high half of the seed}. An element is kept when the word is not below
// round(p 2^32).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace warpcall::expression {

using PhiloxWords = std::array<uint32_t, 4>;

inline PhiloxWords Philox(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

class Mask {
 public:
  Mask(double probability, int call, int64_t seed)
      : threshold_(static_cast<uint64_t>(std::llround(probability * 0x1p32))),
        call_(static_cast<uint32_t>(call)),
        key0_(static_cast<uint32_t>(seed)),
        key1_(static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)) {}

  // Returns the words of elements 4 group to 4 group + 3.
  PhiloxWords Words(int64_t group) const {
    const auto index = static_cast<uint64_t>(group);
    return Philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), call_, 0},
                  key0_, key1_);
  }
  bool Keeps(uint32_t word) const { return word >= threshold_; }
  bool KeepsElement(int64_t place) const {
    return Keeps(Words(place / 4)[static_cast<size_t>(place % 4)]);
  }

 private:
  uint64_t threshold_;  // 0 to 2^32
  uint32_t call_;
  uint32_t key0_;
  uint32_t key1_;
};

// Returns the factor of kept elements, rounded to float32; 0 if no element is kept.
inline float ScaleOf(double probability) {
  return probability < 1 ? static_cast<float>(1 / (1 - probability)) : 0.0f;
}

}  // namespace warpcall::expression
