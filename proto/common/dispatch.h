// Maps a data type known at run time to the C++ type that stores it. No Abseil: CUDA files include
// this.
#pragma once

#include "proto/common/data_type.h"
#include "proto/common/half.h"

namespace warpcall {

// Calls body(T{}) with T = float, Float16 or BFloat16; the value only carries the type.
template <typename Body>
auto DispatchDataType(DataType type, Body&& body) {
  switch (type) {
    case DataType::kFloat32:
      return body(float{});
    case DataType::kFloat16:
      return body(Float16{});
    case DataType::kBFloat16:
      return body(BFloat16{});
  }
  AbortOnDataType(type);
}

}  // namespace warpcall
