#include "kernels/check/fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/common/saturate.h"
#include "proto/common/dispatch.h"

namespace warpcall {
namespace {

// Limits the special values per tensor, so that in long rows and sums some results stay
// finite.
constexpr int64_t kSpecialsMax = 24;
// Threads that fill a tensor together begin with a new seed after so many.
constexpr int64_t kElementsOfASeed = int64_t{1} << 14;

template <typename T>
T FromPattern(uint32_t bits) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(bits);
  } else {
    return T{static_cast<uint16_t>(bits >> 16)};
  }
}

template <typename T>
uint32_t PatternOf(T value) {
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<uint32_t>(value);
  } else {
    return uint32_t{value.bits} << 16;
  }
}

template <typename T>
constexpr uint32_t kExponent = std::is_same_v<T, Float16> ? 0x7C000000u : 0x7F800000u;

// Uniform over bit patterns, hence over exponents; every eighth value is subnormal.
template <typename T>
T Wide(std::mt19937_64& random) {
  for (;;) {
    const uint64_t draw = random();
    uint32_t bits = static_cast<uint32_t>(draw);
    if ((draw >> 32) % 8 == 0) bits &= ~kExponent<T>;
    const T value = FromPattern<T>(bits);
    if (std::isfinite(ToFloat(value))) return value;
  }
}

// Times N(0, 1) far from the largest number, and times the largest subnormal one 2^-5 or 2^-6.
template <typename T>
constexpr float kLargeScale = std::is_same_v<T, Float16> ? 0x1p9f : 0x1p120f;

template <typename T>
void ScatterSpecials(T* data, int64_t elements, std::mt19937_64& random) {
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

// Returns the place of the spike in run `i` of `runs`.
int64_t SpikeAt(int64_t i, const TensorSpec& spec, std::mt19937_64& random) {
  const int64_t length = spec.dims.back();
  const int64_t runs = spec.elements() / length;
  if (runs == length) return i;
  const int64_t power = int64_t{1} << (i / 4 % 62);
  const int64_t places[] = {length - 1 - i / 4, power - 1, power,
                            static_cast<int64_t>(random() % static_cast<uint64_t>(length))};
  const int64_t place = i == 0 ? 0 : places[(i - 1) % 4];
  return place >= 0 && place < length ? place : places[3];
}

// Rows or elements [begin, end) of a tensor.
struct Part {
  const TensorSpec& spec;
  int64_t begin;
  int64_t end;
};

template <typename T>
void FillSpikes(const Part& rows, std::mt19937_64& random, T* data) {
  const int64_t length = rows.spec.dims.back();
  std::fill(data + rows.begin * length, data + rows.end * length, FromFloat<T>(-20.0f));
  for (int64_t i = rows.begin; i < rows.end; ++i)
    data[i * length + SpikeAt(i, rows.spec, random)] = FromFloat<T>(0.0f);
}

template <typename T>
void FillAlike(const Part& rows, std::mt19937_64& random, T* data) {
  constexpr uint32_t kUnits[] = {1, 2, 16};
  constexpr int kShift = sizeof(T) == 4 ? 0 : 16;
  std::uniform_real_distribution<float> exponent(-1, 4);
  const int64_t length = rows.spec.dims.back();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T value =
        FromFloat<T>((random() % 2 == 0 ? 1.0f : -1.0f) * std::pow(10.0f, exponent(random)));
    const uint32_t first = PatternOf(value);
    for (int64_t j = i * length; j < (i + 1) * length; ++j)
      data[j] = FromPattern<T>(first + (static_cast<uint32_t>(random()) % kUnits[i % 3] << kShift));
  }
}

template <typename T>
T Pattern(int64_t i) {
  constexpr uint32_t kFloatStep = 16381;
  const auto bits = static_cast<uint32_t>(i);
  return FromPattern<T>(sizeof(T) == 4 ? bits * kFloatStep : bits << 16);
}

// For fills that know no rows.
template <typename T>
void FillElements(const Part& elements, Fill fill, std::mt19937_64& random, T* data) {
  std::normal_distribution<float> normal(0, fill == Fill::kBroad ? 20.0f : 1.0f);
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    data[i] = fill == Fill::kWide       ? Wide<T>(random)
              : fill == Fill::kPatterns ? Pattern<T>(i)
              : fill == Fill::kSubnormal
                  ? FromPattern<T>(static_cast<uint32_t>(random()) & ~kExponent<T>)
              : fill == Fill::kLarge ? FromFloat<T>(normal(random) * kLargeScale<T>)
                                     : FromFloat<T>(normal(random));
  }
}

bool IsByRows(Fill fill) { return fill == Fill::kSpikes || fill == Fill::kAlike; }

// Elements of what a fill makes at once: a row, or an element.
int64_t UnitOf(const TensorSpec& spec, Fill fill) { return IsByRows(fill) ? spec.dims.back() : 1; }

// Fills the units of a part of the tensor.
template <typename T>
void FillPart(const Part& part, Fill fill, std::mt19937_64& random, T* data) {
  if (fill == Fill::kSpikes) return FillSpikes(part, random, data);
  if (fill == Fill::kAlike) return FillAlike(part, random, data);
  FillElements(part, fill, random, data);
}

}  // namespace

void FillInput(const TensorSpec& spec, Fill fill, uint64_t seed, void* data) {
  const int64_t elements = spec.elements();
  if (elements == 0) return;
  std::mt19937_64 random(seed);
  DispatchDataType(spec.data_type, [&]<typename T>(T) {
    T* const values = static_cast<T*>(data);
    FillPart({spec, 0, elements / UnitOf(spec, fill)}, fill, random, values);
    if (fill == Fill::kSpecial) ScatterSpecials(values, elements, random);
  });
}

void FillInput(const TensorSpec& spec, Filling filling, void* data, cpu::ThreadPool& pool) {
  const auto [fill, seed] = filling;
  const int64_t elements = spec.elements();
  if (elements <= kElementsOfASeed) return FillInput(spec, fill, seed, data);
  const int64_t unit = UnitOf(spec, fill);
  const int64_t units = elements / unit;
  const int64_t together = CeilDivide(kElementsOfASeed, unit);
  std::mt19937_64 random(seed);
  std::vector<uint64_t> seeds(static_cast<size_t>(CeilDivide(units, together)));
  for (uint64_t& each : seeds) each = random();
  DispatchDataType(spec.data_type, [&, fill = fill]<typename T>(T) {
    T* const values = static_cast<T*>(data);
    pool.ParallelFor(static_cast<int64_t>(seeds.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::mt19937_64 own(seeds[static_cast<size_t>(i)]);
        FillPart({spec, i * together, std::min(units, (i + 1) * together)}, fill, own, values);
      }
    });
    if (fill == Fill::kSpecial) ScatterSpecials(values, elements, random);
  });
}

}  // namespace warpcall
