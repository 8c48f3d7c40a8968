// Converts 16-bit inputs to float32 before the chain of GPU kernels, and its float32 result back to
// 16 bits.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/op.h"
#include "proto/common/data_type.h"

namespace warpcall::fused {

struct Conversion {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t elements = 0;  // at least one
};

// Converts to float32 from `type`, and from float32 to it. Memory is aligned as operands are.
absl::Status WidenOnGpu(const Conversion& conversion, DataType type, const LaunchContext& context);
absl::Status RoundOnGpu(const Conversion& conversion, DataType type, const LaunchContext& context);

}  // namespace warpcall::fused
