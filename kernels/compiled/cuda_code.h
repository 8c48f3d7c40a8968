// CUDA C++ for a compiler, and its result, as values that processes send each other.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall::compiled {

struct CudaSource {
  std::string text = {};  // without zero bytes
  std::vector<std::string> options = {};
  std::string file = "program.cu";  // as the log calls it
  // Kernels by C++ expressions: "scale", "rows::scale<float>". May be empty if all are extern "C".
  std::vector<std::string> entries = {};
  bool with_ptx = false;

  bool operator==(const CudaSource& other) const = default;
};

struct CudaCode {
  std::string cubin = {};                 // an ELF
  std::string ptx = {};                   // empty without with_ptx
  std::string log = {};                   // the compiler's warnings
  std::vector<std::string> kernels = {};  // names in the cubin, by entry

  bool operator==(const CudaCode& other) const = default;
};

// Encodes a value:
//
//   text, text, ...: bytes u64 | the bytes
//
// where a list is a text that holds texts. The numbers have this machine's byte order.
std::string ToBytes(const CudaSource& source);
std::string ToBytes(const CudaCode& code);

// Decodes it. INTERNAL for anything that ToBytes does not return.
absl::StatusOr<CudaSource> ParseCudaSource(absl::string_view bytes);
absl::StatusOr<CudaCode> ParseCudaCode(absl::string_view bytes);

}  // namespace warpcall::compiled
