// Output of compile.py for this build, embedded in the binary.
#pragma once

#include "absl/strings/string_view.h"

namespace warpcall::triton {

// The manifest as JSON, for ReadManifest.
absl::string_view EmbeddedManifest();
// The cubins that the manifest refers to, one after the other, aligned to 16 bytes.
absl::string_view EmbeddedCubins();

}  // namespace warpcall::triton
