// The symbols of machine code for GPUs, which is an ELF file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::compiled {

// Returns the names of symbols that the cubin uses and leaves to others to define, such as
// "vprintf". Takes any bytes: INTERNAL for those that are not an ELF file of 64 bits, or contradict
// themselves.
absl::StatusOr<std::vector<std::string>> UndefinedSymbols(absl::string_view cubin);

}  // namespace warpcall::compiled
