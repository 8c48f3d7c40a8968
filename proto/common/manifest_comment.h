// The manifest of a pushed kernel that stands in the code.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// The JSON of the manifest that CUDA source begins with; only blank lines stand before it:
//   // warpcall-kernel {
//   // ...
//   // }
// INVALID_ARGUMENT where there is none, its end is missing, or something else stands before it.
absl::StatusOr<std::string> FindManifest(absl::string_view source);

}  // namespace warpcall
