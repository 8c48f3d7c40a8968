// Elements of .npy files that tensors may not have, and how they become a tensor's. Internal to the
// library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/common/data_type.h"

namespace warpcall::client {

// Turns `count` elements, which lie anywhere, into as many of another type.
using CastElements = void (*)(const char* from, int64_t count, char* to);

// Spellings of a type in a header, as numpy.dtype reads them: "<f4", "=f4", "f4", "f", "float32",
// "single".
struct NpySpelling {
  absl::string_view code;      // "f4"
  absl::string_view letters;   // each of them says the same
  absl::string_view names[2];  // beside the element's own; empty where there are fewer
};

struct NpyElement {
  const char* name;  // NumPy's: "float64"
  size_t bytes;
  CastElements to_float32;
  CastElements to_float16;
  CastElements to_bfloat16;
  NpySpelling spelling;

  // Each result is rounded once, to nearest, ties to even.
  CastElements To(DataType type) const;
};

// Little-endian floats, integers and bool, however `descr` says them; null for anything else.
const NpyElement* FindNpyElement(absl::string_view descr);

}  // namespace warpcall::client
