#include "tests/programs.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace warpcall::testing {
namespace {

bool IsOne(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && absl::string_view(value) == "1";
}

}  // namespace

std::string ProgramPath(absl::string_view name) {
  const char* const folder = std::getenv("WARPCALL_TEST_BIN_DIR");
  return absl::StrCat(folder != nullptr ? folder : WARPCALL_BIN_DIR, "/", name);
}

bool ProgramsAreSanitized() { return IsOne("WARPCALL_TEST_SANITIZED"); }

bool LatenciesAreCompared() { return IsOne("WARPCALL_TEST_LATENCIES") && !ProgramsAreSanitized(); }

}  // namespace warpcall::testing
