// Arrays in Fortran's order as tensors have them. Internal to the library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace warpcall::client {

// Writes the elements of an array of `shape`, which lie at `from` with the first index running
// fastest, to `to` with the last one running fastest. Elements have 2 or 4 bytes; the two places
// don't overlap.
void ToRowMajor(absl::Span<const int64_t> shape, size_t element_bytes, const char* from, char* to);

}  // namespace warpcall::client
