// Small files that operators write.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace warpcall {

// All of the file that `flag` names. INVALID_ARGUMENT names both, and what is wrong: it cannot be
// read, or has more than 1 MiB.
absl::StatusOr<std::string> ReadSmallFile(const std::string& flag, const std::string& path);

}  // namespace warpcall
