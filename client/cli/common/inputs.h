// Inputs of a call: from files, from stdin, or made up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/tensor.h"

namespace warpcall::cli {

// Types as ParseDataType takes them.
struct InputReading {
  std::string type =
      {};  // what each file must hold; empty: any. bfloat16 takes uint16 for its bits
  std::string cast = {};  // what elements of another type are converted to; empty: refused
  bool can_cast = false;  // whether the command has --cast, for what a refusal says
};

// Reads .npy files ("-": stdin, once), and tells people when that takes long or when elements were
// converted.
absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const InputReading& reading);
absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const std::string& type);

// N(0, 1), the same for a seed on every machine.
absl::StatusOr<std::vector<client::Tensor>> RandomInputs(absl::Span<const client::TensorSpec> specs,
                                                         uint64_t seed);

}  // namespace warpcall::cli
