// Pictures as .png, by librsvg's program, where it is installed.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace warpcall::cli {

// NOT_FOUND, with what to install, where rsvg-convert is not in $PATH.
absl::Status CheckPng();
// `svg`, twice as large. INTERNAL when the program did not do it.
absl::StatusOr<std::string> ToPng(const std::string& svg);

}  // namespace warpcall::cli
