// Box and Muller's transform ("A Note on the Generation of Random Normal Deviates", 1958) of a
// counter's hash. Logarithm, sine and cosine are polynomials of additions and multiplications here,
// because libm's last bits differ from machine to machine; for the same reason CMake compiles this
// file without fusing the two. Loops are short and branch-free, for the compiler to vectorise.
#include "server/inspect/fill.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "proto/common/dispatch.h"
#include "proto/common/half.h"

namespace warpcall::inspect {
namespace {

// One hash makes two values: elements j and j + kPairs of a block.
constexpr int64_t kPairs = 128;
constexpr int64_t kBlock = 2 * kPairs;
constexpr int64_t kGrain = 16 * 1024;  // elements, some 50 us

// splitmix64 (G. Steele, D. Lea, C. Flood, 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The polynomials are those of Cephes (S. Moshier, 1989) for single precision.

// ln(x) of a normal x > 0, to 2^-23 relative: x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
inline float Log(float x) {
  constexpr int32_t kSqrtHalfBits = 0x3F3504F3;
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t exponent = (bits - kSqrtHalfBits) >> 23;
  const float f = std::bit_cast<float>(bits - (exponent << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float squared = f * f;
  return static_cast<float>(exponent) * 0.693147181f + (f + (p * f * squared - 0.5f * squared));
}

struct Point {
  float cosine;
  float sine;
};

// The point after turns x 2^-32 full turns: the nearest quarter exactly, the rest, at most pi / 4,
// by polynomials.
inline Point OnCircle(uint32_t turns) {
  const uint32_t quarter = (turns + 0x20000000u) >> 30;
  const int32_t rest = static_cast<int32_t>(turns - (quarter << 30));
  const float x = static_cast<float>(rest) * 1.46291807927e-9f;  // 2 pi / 2^32
  const float z = x * x;
  const float sine =
      ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const uint32_t swap = 0u - (quarter & 1);
  const uint32_t s = std::bit_cast<uint32_t>(sine);
  const uint32_t c = std::bit_cast<uint32_t>(cosine);
  const uint32_t sine_sign = (quarter & 2) << 30;
  const uint32_t cosine_sign = ((quarter + 1) & 2) << 30;
  return {std::bit_cast<float>(((c & ~swap) | (s & swap)) ^ cosine_sign),
          std::bit_cast<float>(((s & ~swap) | (c & swap)) ^ sine_sign)};
}

// Writes the values of block number `block`.
void MakeBlock(uint64_t key, int64_t block, float* values) {
  int32_t magnitudes[kPairs];
  uint32_t turns[kPairs];
  for (int64_t j = 0; j < kPairs; ++j) {
    const uint64_t hash = Mix(key + static_cast<uint64_t>(block * kPairs + j));
    magnitudes[j] = static_cast<int32_t>(hash >> 33);
    turns[j] = static_cast<uint32_t>(hash);
  }
  for (int64_t j = 0; j < kPairs; ++j) {
    const float uniform = (static_cast<float>(magnitudes[j]) + 0.5f) * 0x1p-31f;  // in (0, 1]
    const float radius = std::sqrt(std::max(-2.0f * Log(uniform), 0.0f));
    const Point point = OnCircle(turns[j]);
    values[j] = radius * point.cosine;
    values[j + kPairs] = radius * point.sine;
  }
}

}  // namespace

NormalSequence::NormalSequence(uint64_t seed, int input)
    : key_(Mix(Mix(seed) + static_cast<uint64_t>(input))) {}

void NormalSequence::Write(DataType data_type, int64_t first, int64_t count, void* data) const {
  DispatchDataType(data_type, [&]<typename T>(T) {
    T* const out = static_cast<T*>(data);
    float values[kBlock];
    for (int64_t i = 0; i < count;) {
      const int64_t block = (first + i) / kBlock;
      const int64_t offset = (first + i) % kBlock;
      const int64_t taken = std::min(kBlock - offset, count - i);
      MakeBlock(key_, block, values);
      for (int64_t j = 0; j < taken; ++j) out[i + j] = FromFloat<T>(values[offset + j]);
      i += taken;
    }
  });
}

void Fill(const TensorSpec& spec, const NormalSequence& sequence, cpu::ThreadPool& pool,
          void* data) {
  const auto element_bytes = static_cast<int64_t>(ElementBytes(spec.data_type));
  pool.ParallelFor(spec.elements(), kGrain, [&](int64_t begin, int64_t end) {
    sequence.Write(spec.data_type, begin, end - begin,
                   static_cast<char*>(data) + begin * element_bytes);
  });
}

}  // namespace warpcall::inspect
