// NumPy's .npy files (format versions 1 to 3) as tensors:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

struct NpyReadOptions {
  // Reads unsigned 16-bit integers as the bits of bfloat16 values.
  bool uint16_is_bfloat16 = false;
  // Converts elements of other types (float64, integers, bool) to this type; each element is
  // rounded once.
  std::optional<DataType> cast = std::nullopt;
  // Advice on conversion that is added to the error for an unsupported element type.
  absl::string_view cast_advice = "NpyReadOptions::cast converts them";
};

// Reads float32 ('<f4', or any other spelling that numpy.dtype takes: '=f4', 'f4', 'float32'),
// float16 ('<f2') or bfloat16 ('<V2', as ml_dtypes writes it, or '<u2' with uint16_is_bfloat16),
// little-endian, in C order or Fortran order. The tensor has the file's shape, in C order.
// INVALID_ARGUMENT for another type, which the message names with those allowed, and for a file
// that is shorter or longer than its header requires; RESOURCE_EXHAUSTED if there is no memory for
// the tensor; NOT_FOUND, PERMISSION_DENIED and others from opening the file. Checks the size of a
// regular file before it allocates. If `converted_from` is not null, it gets the name of the type
// that was converted, empty for none.
absl::StatusOr<Tensor> ReadNpy(const std::string& path, const NpyReadOptions& options = {},
                               std::string* converted_from = nullptr);
// Reads from an open file or pipe up to its end; errors call it `name`.
absl::StatusOr<Tensor> ReadNpy(int descriptor, const std::string& name,
                               const NpyReadOptions& options = {},
                               std::string* converted_from = nullptr);

// Writes version 1.0; bfloat16 as '<V2', which ReadNpy and ml_dtypes read as bfloat16 and NumPy
// alone as two bytes, for .view(numpy.uint16). Replaces the file atomically, once the new one is
// complete. Errors name the path and the reason.
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);
// Writes to an open file or pipe directly; errors call it `name`.
absl::Status WriteNpy(int descriptor, const std::string& name, const Tensor& tensor);

}  // namespace warpcall::client
