// The vector conversions against the scalar ones, on every instruction set that this CPU has.
#include "kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/simd_convert_test.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/simd_convert-inl.h"
#include "proto/common/half.h"

HWY_BEFORE_NAMESPACE();
namespace warpcall::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = warpcall::cpu::HWY_NAMESPACE;

// `count` may be anything: the last vector is partial.
template <typename T>
void Widen(const T* from, float* to, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(simd::LoadFloats(d, from + i), d, to + i);
  if (i == count) return;
  const auto rest = simd::LoadFloatsPartial(d, from + i, count - i, T{});
  simd::StoreFloatsPartial(d, rest, to + i, count - i);
}

template <typename T>
void Narrow(const float* from, T* to, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) simd::StoreFloats(d, hn::LoadU(d, from + i), to + i);
  if (i == count) return;
  const auto rest = simd::LoadFloatsPartial(d, from + i, count - i, 0.0f);
  simd::StoreFloatsPartial(d, rest, to + i, count - i);
}

void WidenFloat16(const Float16* from, float* to, size_t count) { Widen(from, to, count); }
void WidenBFloat16(const BFloat16* from, float* to, size_t count) { Widen(from, to, count); }
void NarrowFloat16(const float* from, Float16* to, size_t count) { Narrow(from, to, count); }
void NarrowBFloat16(const float* from, BFloat16* to, size_t count) { Narrow(from, to, count); }

}  // namespace
}  // namespace warpcall::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/kernels/vector_targets.h"

namespace warpcall {
namespace {

HWY_EXPORT(WidenFloat16);
HWY_EXPORT(WidenBFloat16);
HWY_EXPORT(NarrowFloat16);
HWY_EXPORT(NarrowBFloat16);

struct Float16Functions {
  using Type = Float16;
  static void Widen(const Float16* from, float* to, size_t count) {
    HWY_DYNAMIC_DISPATCH(WidenFloat16)(from, to, count);
  }
  static void Narrow(const float* from, Float16* to, size_t count) {
    HWY_DYNAMIC_DISPATCH(NarrowFloat16)(from, to, count);
  }
};

struct BFloat16Functions {
  using Type = BFloat16;
  static void Widen(const BFloat16* from, float* to, size_t count) {
    HWY_DYNAMIC_DISPATCH(WidenBFloat16)(from, to, count);
  }
  static void Narrow(const float* from, BFloat16* to, size_t count) {
    HWY_DYNAMIC_DISPATCH(NarrowBFloat16)(from, to, count);
  }
};

template <typename Functions>
class SimdConvertTest : public ::testing::Test {
 protected:
  // Runs `body` once per instruction set.
  template <typename Body>
  void ForEachTarget(Body body) {
    for (int64_t target : testing::VectorTargets()) {
      SCOPED_TRACE(testing::VectorTargetName(target));
      testing::ScopedVectorTarget scope(target);
      body();
    }
  }
};
using Types = ::testing::Types<Float16Functions, BFloat16Functions>;
TYPED_TEST_SUITE(SimdConvertTest, Types);

TYPED_TEST(SimdConvertTest, WidensEveryValueAsTheScalarCode) {
  using T = typename TypeParam::Type;
  std::vector<T> from;
  for (uint32_t bits = 0; bits < 65536; ++bits) from.push_back({static_cast<uint16_t>(bits)});
  from.push_back({1});  // a partial vector
  this->ForEachTarget([&] {
    std::vector<float> to(from.size(), -1.0f);
    TypeParam::Widen(from.data(), to.data(), from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      const float expected = ToFloat(from[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(to[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(to[i]), std::bit_cast<uint32_t>(expected)) << i;
      }
    }
  });
}

// Each value of the type, the half way to its neighbour, one step of float to both sides of each,
// and patterns from all over float.
TYPED_TEST(SimdConvertTest, NarrowsAsTheScalarCode) {
  using T = typename TypeParam::Type;
  std::vector<float> from;
  const auto add_around = [&](float value) {
    from.push_back(value);
    from.push_back(std::nextafter(value, -INFINITY));
    from.push_back(std::nextafter(value, INFINITY));
  };
  for (uint32_t bits = 0; bits < 65535; ++bits) {
    const float low = ToFloat(T{static_cast<uint16_t>(bits)});
    const float high = ToFloat(T{static_cast<uint16_t>(bits + 1)});
    add_around(low);
    add_around(low + (high - low) / 2);
  }
  add_around(65520.0f);
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 4099) {
    from.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  this->ForEachTarget([&] {
    std::vector<T> to(from.size(), T{0x5A5A});
    TypeParam::Narrow(from.data(), to.data(), from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      const T expected = FromFloat<T>(from[i]);
      if (std::isnan(from[i])) {
        ASSERT_TRUE(std::isnan(ToFloat(to[i]))) << i;
      } else {
        ASSERT_EQ(to[i].bits, expected.bits) << std::hexfloat << from[i];
      }
    }
  });
}

}  // namespace
}  // namespace warpcall

#endif  // HWY_ONCE
