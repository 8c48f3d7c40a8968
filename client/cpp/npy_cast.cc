#include "client/cpp/npy_cast.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "proto/common/half.h"

namespace warpcall::client {
namespace {

// To float, of its two neighbours to the one whose last bit is set, unless the value is a float.
// Rounding that to half as many bits gives what rounding the value itself would (Boldo and
// Melquiond 2008).
float ToOdd(long double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<long double>(nearest) == value) return nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if ((bits & 1) != 0) return nearest;
  const bool beyond = std::fabs(static_cast<long double>(nearest)) > std::fabs(value);
  return std::bit_cast<float>(beyond ? bits - 1 : bits + 1);
}

// A long double holds every integer of 64 bits.
template <typename To, typename From>
To Rounded(From value) {
  if constexpr (std::is_same_v<From, Float16> || std::is_same_v<From, BFloat16>) {
    return FromFloat<To>(ToFloat(value));
  } else if constexpr (std::is_same_v<To, float>) {
    return static_cast<float>(value);
  } else {
    return FromFloat<To>(ToOdd(static_cast<long double>(value)));
  }
}

template <typename From, typename To>
void Cast(const char* from, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    const To result = Rounded<To>(value);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(To)), &result, sizeof(To));
  }
}

template <typename From>
constexpr NpyElement Element(absl::string_view descr, const char* name) {
  return {descr, name, sizeof(From), Cast<From, float>, Cast<From, Float16>, Cast<From, BFloat16>};
}

// bool as the number that its byte is: NumPy writes 0 or 1.
constexpr NpyElement kElements[] = {
    Element<double>("<f8", "float64"),
    Element<float>("<f4", "float32"),
    Element<Float16>("<f2", "float16"),
    Element<BFloat16>("<V2", "bfloat16"),
    Element<BFloat16>("|V2", "bfloat16"),
    Element<BFloat16>("V2", "bfloat16"),
    Element<BFloat16>("bfloat16", "bfloat16"),
    Element<uint8_t>("|b1", "bool"),
    Element<int8_t>("|i1", "int8"),
    Element<int16_t>("<i2", "int16"),
    Element<int32_t>("<i4", "int32"),
    Element<int64_t>("<i8", "int64"),
    Element<uint8_t>("|u1", "uint8"),
    Element<uint16_t>("<u2", "uint16"),
    Element<uint32_t>("<u4", "uint32"),
    Element<uint64_t>("<u8", "uint64"),
};

}  // namespace

CastElements NpyElement::To(DataType type) const {
  switch (type) {
    case DataType::kFloat32:
      return to_float32;
    case DataType::kFloat16:
      return to_float16;
    case DataType::kBFloat16:
      return to_bfloat16;
  }
  AbortOnDataType(type);
}

const NpyElement* FindNpyElement(absl::string_view descr) {
  for (const NpyElement& element : kElements)
    if (element.descr == descr) return &element;
  return nullptr;
}

}  // namespace warpcall::client
