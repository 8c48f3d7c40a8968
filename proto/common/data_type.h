// The element types that tensors may have. Values equal the wire's (warpcall.v1.DataType).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace warpcall {

enum class DataType : uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3 };

inline constexpr DataType kDataTypes[] = {DataType::kFloat32, DataType::kFloat16,
                                          DataType::kBFloat16};
inline constexpr int kDataTypeCount = 3;

// Ends the process. Input from outside was checked, so an unknown type is a defect of this program.
// Follows every switch over types, none of which has a default: the compiler warns about each
// switch that lacks a newly added type.
[[noreturn]] inline void AbortOnDataType(DataType type) {
  std::fprintf(stderr, "data type %d is unknown\n", static_cast<int>(type));
  std::abort();
}

constexpr size_t ElementBytes(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
  }
  AbortOnDataType(type);
}

constexpr const char* DataTypeName(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

}  // namespace warpcall
