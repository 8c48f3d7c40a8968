// Who may include whom: ARCHITECTURE.md's rooms and laws as a table.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/tidy/source.h"

namespace warpcall::tidy {

struct Include {
  std::string path;  // between the quotes or angle brackets
  bool quoted = false;
  int line = 0;  // from 1
};

std::vector<Include> ScanIncludes(const Source& source);

// One finding for each include that the table has no place for: another room's header, a library
// that the room must not see, a library that the table doesn't know.
std::vector<Finding> CheckIncludes(const Source& source);

}  // namespace warpcall::tidy
