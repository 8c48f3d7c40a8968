// Inputs of a call: from files, from stdin, or random.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "warpcall/tensor.h"

namespace warpcall::cli {

// Types as ParseDataType takes them.
struct InputReading {
  std::string type =
      {};  // required type of each file; empty: any. bfloat16 reads uint16 as raw bits
  std::string cast = {};  // target type of elements of other types; empty: refused
  bool can_cast = false;  // true if the command has --cast; used in error messages
};

// Before the handle of a tensor that is on the server, in place of a file's name.
inline constexpr char kHandleMark = '@';
// "@HANDLE".
std::string HandleText(const std::string& handle);

// Reads .npy files ("-": stdin, once), and tells people when that takes long or when elements were
// converted. "@HANDLE" is a tensor on the server, whose type nobody here knows.
absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const InputReading& reading);
absl::StatusOr<std::vector<client::Tensor>> ReadInputs(absl::Span<const std::string> paths,
                                                       const std::string& type);

// N(0, 1), the same for a seed on every machine.
absl::StatusOr<std::vector<client::Tensor>> RandomInputs(absl::Span<const client::TensorSpec> specs,
                                                         uint64_t seed);

enum class Distribution : uint8_t {
  // Magnitudes from 1/16 to 1, so that none is zero or subnormal in any type, and either sign.
  kAwayFromZero,
  // N(0, 1).
  kNormal,
};

// Makes the same tensor on every machine for a state of `random`, up to rounding in the math
// library. INVALID_ARGUMENT when the bytes overflow, RESOURCE_EXHAUSTED when memory runs out.
absl::StatusOr<client::Tensor> RandomTensor(const client::TensorSpec& spec,
                                            Distribution distribution, std::mt19937_64* random);

}  // namespace warpcall::cli
