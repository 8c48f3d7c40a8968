// Small files that flags name.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace warpcall {

inline constexpr size_t kSmallFileBytesMax = size_t{1} << 20;

// OK if `path` is a regular file, or a link to one. Any other kind of file (a FIFO, a socket, a
// device) is never opened: opening it can block for ever, or have effects. Errors are as
// ReadSmallFile's.
absl::Status CheckRegularFile(const std::string& flag, const std::string& path);

// All of the file that `flag` names. Errors open with both: NOT_FOUND where there is none,
// UNAVAILABLE where it cannot be read, INVALID_ARGUMENT where it is no regular file, or larger than
// `bytes_max`. A file system that hangs (NFS whose server is gone) still blocks the caller.
absl::StatusOr<std::string> ReadSmallFile(const std::string& flag, const std::string& path,
                                          size_t bytes_max = kSmallFileBytesMax);

}  // namespace warpcall
