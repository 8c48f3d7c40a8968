// The ops' source files, embedded in the binary.
#pragma once

#include "absl/strings/string_view.h"

namespace warpcall {

// Returns each file's path from the root of the project and its text, each ended by a zero byte.
absl::string_view EmbeddedFiles();
// Likewise of the ops that brought their folders (kernels/ops.cmake); the path is FOLDER/FILE.
absl::string_view EmbeddedFilesOfFolders();

}  // namespace warpcall
