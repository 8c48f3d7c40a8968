// CUDA C++ that users push: the source as a compiler gets it, and what is refused of its result.
// The compiler itself runs in a confined process (server/compile/foreign_compiler.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/compiled/cuda_code.h"
#include "kernels/compiled/nvrtc.h"
#include "proto/common/data_type.h"

namespace warpcall::compiled {

struct ForeignSource {
  std::string name = {};  // the kernel's; its log calls the file NAME.cu
  std::string source = {};
  std::vector<std::string> options = {};  // as a KernelManifest has them, which are checked
  std::vector<std::string> entries = {};  // kernels: "softmax_kernel", or "softmax_kernel<T>"
  DataType data_type = DataType::kFloat32;
  std::string arch = {};  // "sm_90a"
  bool with_ptx = false;
};

inline constexpr size_t kForeignSourceBytesMax = size_t{4} << 20;

// Returns the source with the lines that define T, INFINITY, NAN and WARPCALL_T_FLOAT32, _FLOAT16
// or _BFLOAT16, and the options for `include_folder`, which holds the toolkit's headers; empty:
// there are none. The log numbers lines as the author does. A CompileError for a zero byte in the
// source; INVALID_ARGUMENT for more than kForeignSourceBytesMax; UNIMPLEMENTED for a type that
// needs a header where there are none.
absl::StatusOr<CudaSource> ToCudaSource(const ForeignSource& foreign,
                                        const std::string& include_folder);

// Returns `refusal`, an error of ToCudaSource. If headers are missing and `compiler` is an error,
// LoadNvrtc's, that is said too.
absl::Status WithMissingCompiler(const absl::Status& refusal, const absl::Status& compiler);

// Compiles it and returns a CompileError for code that a kernel must not call, by its symbols:
// printf, malloc, assert and launches of other kernels. Logs and errors are cleaned, and don't tell
// whether a file exists that may not be opened.
absl::StatusOr<CudaCode> CompileAndCheck(const CompileFunction& compile, const CudaSource& source);

// Returns the text without control characters but newline and tab, with U+FFFD for bytes that are
// not UTF-8, cut to fit.
std::string CleanText(absl::string_view text, size_t bytes_max);

}  // namespace warpcall::compiled
