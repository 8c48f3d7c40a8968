// What compile.py made for this build, as part of the binary.
#pragma once

#include "absl/strings/string_view.h"

namespace warpcall::triton {

// JSON: manifest.h reads it.
absl::string_view EmbeddedManifest();
// The cubins that it speaks of, one after the other, aligned to 16 bytes.
absl::string_view EmbeddedCubins();

}  // namespace warpcall::triton
