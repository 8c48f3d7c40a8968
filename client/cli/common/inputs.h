// Inputs of a call from files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/tensor.h"

namespace warpcall::cli {

// Reads .npy files and tells people when that takes long. `type` is what each must hold, as
// DataTypeOption says it; empty: any. bf16 takes uint16 for bfloat16.
absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const std::string& type);

}  // namespace warpcall::cli
