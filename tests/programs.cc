#include "tests/programs.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {

std::string ProgramPath(absl::string_view name) {
  const char* const folder = std::getenv("WARPCALL_TEST_BIN_DIR");
  return absl::StrCat(folder != nullptr ? folder : WARPCALL_BIN_DIR, "/", name);
}

bool ProgramsAreSanitized() {
  const char* const sanitized = std::getenv("WARPCALL_TEST_SANITIZED");
  return sanitized != nullptr && absl::string_view(sanitized) == "1";
}

}  // namespace warpcall::testing
