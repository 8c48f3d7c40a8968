// Types and shapes of tensors as options say them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/common/data_type.h"

namespace warpcall::cli {

using Shape = std::vector<int64_t>;
using Shapes = std::vector<Shape>;

// f32, f16 or bf16.
absl::StatusOr<DataType> ParseDataType(absl::string_view text);
const char* DataTypeOption(DataType type);  // as ParseDataType takes it

// 0 to INT64_MAX, in digits only. INVALID_ARGUMENT without a message of its own.
absl::StatusOr<int64_t> ParseDimension(absl::string_view text);

}  // namespace warpcall::cli
