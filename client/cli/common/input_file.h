// Text files that a command reads whole.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace warpcall::cli {

// Reads a file, of which it never reads much more than `bytes_max`. INVALID_ARGUMENT for a larger
// file; other errors have the system's reason. Messages name the path.
absl::StatusOr<std::string> ReadInputFile(const std::string& path, size_t bytes_max);

}  // namespace warpcall::cli
