#include "tests/kernels/fill.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>

#include "absl/strings/numbers.h"
#include "kernels/common/dispatch.h"

namespace warpcall::testing {
namespace {

// At most this many special values per tensor, so that in long rows and sums some results stay
// finite.
constexpr int64_t kSpecialsMax = 24;

uint64_t SeedFromEnvironment() {
  const char* const text = std::getenv("WARPCALL_TEST_SEED");
  uint64_t seed = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &seed)) return seed;
  return std::random_device()();
}

// FNV-1a (Fowler, Noll, Vo).
uint64_t Hash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

template <typename T>
T FromPattern(uint32_t bits) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(bits);
  } else {
    return T{static_cast<uint16_t>(bits >> 16)};
  }
}

// Uniform over bit patterns, hence over exponents; every eighth value is subnormal.
template <typename T>
T Wide(std::mt19937_64& random) {
  constexpr uint32_t kExponent = std::is_same_v<T, Float16> ? 0x7C000000u : 0x7F800000u;
  for (;;) {
    const uint64_t draw = random();
    uint32_t bits = static_cast<uint32_t>(draw);
    if ((draw >> 32) % 8 == 0) bits &= ~kExponent;
    const T value = FromPattern<T>(bits);
    if (std::isfinite(ToFloat(value))) return value;
  }
}

template <typename T>
void StrewSpecials(T* data, int64_t elements, std::mt19937_64& random) {
  // The largest finite, the smallest normal and the smallest subnormal value of each type.
  constexpr bool kIsFloat16 = std::is_same_v<T, Float16>;
  constexpr bool kIsFloat32 = std::is_same_v<T, float>;
  constexpr float kLargest = kIsFloat16 ? 65504.0f : kIsFloat32 ? 0x1.FFFFFEp127f : 0x1.FEp127f;
  constexpr float kNormal = kIsFloat16 ? 0x1p-14f : 0x1p-126f;
  constexpr float kSubnormal = kIsFloat16 ? 0x1p-24f : kIsFloat32 ? 0x1p-149f : 0x1p-133f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecials[] = {std::numeric_limits<float>::quiet_NaN(),
                                 -kInfinity,
                                 kInfinity,
                                 0.0f,
                                 -0.0f,
                                 kLargest,
                                 -kLargest,
                                 kNormal,
                                 -kNormal,
                                 kSubnormal,
                                 -kSubnormal};
  const int64_t count = std::clamp<int64_t>(elements / 8, 1, kSpecialsMax);
  const size_t first = random() % std::size(kSpecials);
  for (int64_t k = 0; k < count; ++k) {
    const float value = kSpecials[(first + k) % std::size(kSpecials)];
    data[random() % elements] = FromFloat<T>(value);
  }
}

}  // namespace

uint64_t RunSeed() {
  static const uint64_t seed = [] {
    const uint64_t chosen = SeedFromEnvironment();
    std::printf("Random data: repeat this run with WARPCALL_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(chosen));
    std::fflush(stdout);
    return chosen;
  }();
  return seed;
}

Memory FilledInput(const TensorSpec& spec, Fill fill, absl::string_view label) {
  Memory memory(spec.bytes());
  const int64_t elements = spec.elements();
  if (elements == 0) return memory;
  std::mt19937_64 random(RunSeed() ^ Hash(label));
  std::normal_distribution<float> normal;
  DispatchDataType(spec.data_type, [&]<typename T>(T) {
    T* const data = static_cast<T*>(memory.data());
    for (int64_t i = 0; i < elements; ++i) {
      data[i] = fill == Fill::kWide ? Wide<T>(random) : FromFloat<T>(normal(random));
    }
    if (fill == Fill::kSpecial) StrewSpecials(data, elements, random);
  });
  return memory;
}

}  // namespace warpcall::testing
