// The ops' source files that CMake lists, embedded in the binary.
#pragma once

#include "absl/strings/string_view.h"

namespace warpcall {

// Returns each file's path from the root of the project and its text, each ended by a zero byte.
absl::string_view EmbeddedFiles();

}  // namespace warpcall
