// The manifest of a pushed kernel that stands in the code.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// UTF-8's byte order mark, which editors put before a text.
inline constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The JSON of the manifest that CUDA source begins with; only a byte order mark and blank lines
// stand before it:
//   // warpcall-kernel {
//   // ...
//   // }
// or, in one line,
//   // warpcall-kernel {...}
// INVALID_ARGUMENT where there is none, its end is missing, or something else stands before it.
absl::StatusOr<std::string> FindManifest(absl::string_view source);

}  // namespace warpcall
