// SHA-256 (FIPS 180-4), by which files are named and checked.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace warpcall::compiled {

using Sha256 = std::array<uint8_t, 32>;

Sha256 Sha256Of(absl::string_view data);

}  // namespace warpcall::compiled
