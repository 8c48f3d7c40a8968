// NumPy's .npy files (format versions 1 to 3) as tensors:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

struct NpyReadOptions {
  // Take unsigned 16-bit integers for the bits of bfloat16 values.
  bool uint16_is_bfloat16 = false;
  // Convert elements of other types, float64, integers and bool among them, rounding each element
  // once.
  std::optional<DataType> cast = std::nullopt;
  // Advice on conversion that is added to the error for an unsupported element type.
  absl::string_view cast_advice = "NpyReadOptions::cast converts them";
};

// Reads float32 ('<f4', or however else numpy.dtype says it: '=f4', 'f4', 'float32'), float16
// ('<f2') or bfloat16 ('<V2', as ml_dtypes writes it, or '<u2' when asked), little-endian, in C
// order or in Fortran's. INVALID_ARGUMENT says what was found and what
// is taken, also for a file that is shorter or longer than its header says; NOT_FOUND,
// PERMISSION_DENIED and the like come from opening it; RESOURCE_EXHAUSTED when there is no memory
// for it. The size of a regular file is checked before memory is taken. `converted_from`, unless
// null, gets the name of the type that was converted, empty when none was.
absl::StatusOr<Tensor> ReadNpy(const std::string& path, const NpyReadOptions& options = {},
                               std::string* converted_from = nullptr);
// Reads from an open file or pipe up to its end; messages call it `name`.
absl::StatusOr<Tensor> ReadNpy(int descriptor, const std::string& name,
                               const NpyReadOptions& options = {},
                               std::string* converted_from = nullptr);

// Writes version 1.0; bfloat16 as '<V2', which ReadNpy and ml_dtypes know for what it is, and which
// NumPy alone reads as two bytes, for .view(numpy.uint16). The file appears, or replaces what was
// there, when it is complete.
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);
// Writes to an open file or pipe directly; messages call it `name`.
absl::Status WriteNpy(int descriptor, const std::string& name, const Tensor& tensor);

// Fields of a file's header. Exposed for tests and tools.
struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};
// `text` is the header's Python dictionary literal.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text);

}  // namespace warpcall::client
