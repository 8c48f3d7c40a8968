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

struct NpyElement {
  absl::string_view descr;
  const char* name;  // NumPy's: "float64"
  size_t bytes;
  CastElements to_float32;
  CastElements to_float16;
  CastElements to_bfloat16;

  // Each result is rounded once, to nearest, ties to even.
  CastElements To(DataType type) const;
};

// Little-endian floats, integers and bool; null for what else there is.
const NpyElement* FindNpyElement(absl::string_view descr);

}  // namespace warpcall::client
