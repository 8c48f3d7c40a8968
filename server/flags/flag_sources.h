// Flags from a file and from the environment, beside those of the command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace warpcall {

struct FlagSetting {
  std::string name;   // "staging_mib"
  std::string value;  // "512"
  std::string where;  // "WARPCALLD_STAGING_MIB", "/etc/warpcalld.flags:3"
};

// A flag a line, NAME=VALUE or --NAME=VALUE; blank lines, and those that begin with #, say nothing.
// Errors of the file are ReadSmallFile's. INVALID_ARGUMENT: a line is none of these, or a name is
// given twice.
absl::StatusOr<std::vector<FlagSetting>> ReadFlagFile(const std::string& path);

// WARPCALLD_NAME=VALUE, in the order of the environment, which a null pointer ends.
std::vector<FlagSetting> FlagsOfEnvironment(const char* const* environment);

}  // namespace warpcall
