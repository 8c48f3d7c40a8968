// The element types that tensors may have. Values equal the wire's (warpcall.v1.DataType).
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpcall {

enum class DataType : uint8_t { kFloat32 = 1, kFloat16 = 2, kBFloat16 = 3 };

inline constexpr DataType kDataTypes[] = {DataType::kFloat32, DataType::kFloat16,
                                          DataType::kBFloat16};
inline constexpr int kDataTypeCount = 3;

constexpr size_t ElementBytes(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

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
