#include "client/cpp/npy_cast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/match.h"
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
constexpr NpyElement Element(const char* name, NpySpelling spelling) {
  return {name,    sizeof(From), Cast<From, float>, Cast<From, Float16>, Cast<From, BFloat16>,
          spelling};
}

// Letters and other names are those that numpy.dtype takes on Linux for 64 bits. bool as the number
// that its byte is: NumPy writes 0 or 1.
constexpr NpyElement kElements[] = {
    Element<double>("float64", {"f8", "d", {"double", "float"}}),
    Element<float>("float32", {"f4", "f", {"single"}}),
    Element<Float16>("float16", {"f2", "e", {"half"}}),
    Element<BFloat16>("bfloat16", {"V2", "", {}}),
    Element<uint8_t>("bool", {"b1", "?", {}}),
    Element<int8_t>("int8", {"i1", "b", {"byte"}}),
    Element<int16_t>("int16", {"i2", "h", {"short"}}),
    Element<int32_t>("int32", {"i4", "i", {"intc"}}),
    Element<int64_t>("int64", {"i8", "lqp", {"int", "longlong"}}),
    Element<uint8_t>("uint8", {"u1", "B", {"ubyte"}}),
    Element<uint16_t>("uint16", {"u2", "H", {"ushort"}}),
    Element<uint32_t>("uint32", {"u4", "I", {"uintc"}}),
    Element<uint64_t>("uint64", {"u8", "LQP", {"uint", "ulonglong"}}),
};

// True if `order` is this machine's byte order, or states none.
bool IsNativeOrder(absl::string_view order, size_t element_bytes) {
  if (order.empty() || order == "<" || order == "=" || order == "|") return true;
  return order == ">" && element_bytes == 1;
}

bool Means(absl::string_view descr, const NpyElement& element) {
  const NpySpelling& spelling = element.spelling;
  if (descr == element.name) return true;
  for (const absl::string_view name : spelling.names)
    if (!name.empty() && descr == name) return true;
  const size_t order_end = std::min(descr.find_first_not_of("<>=|"), descr.size());
  const absl::string_view code = descr.substr(order_end);
  const bool is_letter = code.size() == 1 && absl::StrContains(spelling.letters, code);
  return (code == spelling.code || is_letter) &&
         IsNativeOrder(descr.substr(0, order_end), element.bytes);
}

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
    if (Means(descr, element)) return &element;
  return nullptr;
}

}  // namespace warpcall::client
