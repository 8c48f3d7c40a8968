// What CMake's list made of the ops' files, as part of the binary.
#pragma once

#include "absl/strings/string_view.h"

namespace warpcall {

// For each file its path from the root of the project and its text, each followed by a zero byte.
absl::string_view EmbeddedFiles();

}  // namespace warpcall
