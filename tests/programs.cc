#include "tests/programs.h"

#include <sys/wait.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/temp_folder.h"

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

ProgramResult RunProgram(const std::string& command, const std::string& err_path) {
  const TempFolder folder;
  const std::string out = folder.Path("out");
  const std::string err = err_path.empty() ? folder.Path("err") : err_path;
  const int status = std::system(absl::StrCat(command, " >'", out, "' 2>'", err, "'").c_str());
  return {.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = ReadFile(out),
          .err = ReadFile(err)};
}

}  // namespace warpcall::testing
