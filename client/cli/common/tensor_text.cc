#include "client/cli/common/tensor_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace warpcall::cli {

absl::StatusOr<DataType> ParseDataType(absl::string_view text) {
  for (const DataType type : kDataTypes)
    if (text == DataTypeOption(type)) return type;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "': a type is f32, f16 or bf16"));
}

const char* DataTypeOption(DataType type) {
  return type == DataType::kFloat32 ? "f32" : type == DataType::kFloat16 ? "f16" : "bf16";
}

absl::StatusOr<int64_t> ParseDimension(absl::string_view text) {
  int64_t dimension;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &dimension)) return absl::InvalidArgumentError("");
  return dimension;
}

}  // namespace warpcall::cli
