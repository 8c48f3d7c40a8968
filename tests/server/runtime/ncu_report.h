// Reads the output of Nsight Compute (ncu) with --csv --page raw.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::testing {

// One profiled kernel: column to text.
using NcuKernel = std::map<std::string, std::string>;

// Skips the output of ncu and the program before the table: its first line begins with "ID"; the
// second has the units. INVALID_ARGUMENT gives the text if it has no table.
absl::StatusOr<std::vector<NcuKernel>> ParseNcu(absl::string_view text);

// NOT_FOUND lists the columns there are.
absl::StatusOr<double> NcuNumber(const NcuKernel& kernel, const std::string& column);

}  // namespace warpcall::testing
