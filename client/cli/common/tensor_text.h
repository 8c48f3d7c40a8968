// Types and shapes of tensors as options say them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/common/data_type.h"

namespace warpcall::cli {

using Shape = std::vector<int64_t>;
using Shapes = std::vector<Shape>;

// The types, and in how many ways each may be spelt.
inline constexpr absl::string_view kTypesText =
    "float32 (f32, fp32), float16 (f16, fp16, half) and bfloat16 (bf16)";

// The only parser of types: reads the names in kTypesText, in either case. DataTypeName prints.
absl::StatusOr<DataType> ParseDataType(absl::string_view text);

// 0 to INT64_MAX, in digits only. INVALID_ARGUMENT without a message of its own.
absl::StatusOr<int64_t> ParseDimension(absl::string_view text);

}  // namespace warpcall::cli
