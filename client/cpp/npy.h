// NumPy's .npy files (format versions 1 to 3) as tensors:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/tensor.h"

namespace warpcall::client {

struct NpyReadOptions {
  // Take unsigned 16-bit integers for the bits of bfloat16 values.
  bool uint16_is_bfloat16 = false;
};

// Reads float32 ('<f4'), float16 ('<f2') or bfloat16 ('<V2', as ml_dtypes writes it, or '<u2' when
// asked), little-endian and in C order. INVALID_ARGUMENT says what was found and what is taken,
// also for a file that is shorter or longer than its header says; NOT_FOUND, PERMISSION_DENIED and
// the like come from opening it; RESOURCE_EXHAUSTED when there is no memory for it. The file's size
// is checked before memory is taken.
absl::StatusOr<Tensor> ReadNpy(const std::string& path, const NpyReadOptions& options = {});

// Writes version 1.0; bfloat16 as uint16 ('<u2'), which every NumPy reads. The file appears, or
// replaces what was there, when it is complete.
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);

// What a file's header says. Exposed for tests and tools.
struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};
// `text` is the header's Python dictionary literal.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text);

}  // namespace warpcall::client
