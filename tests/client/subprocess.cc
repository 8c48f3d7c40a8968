#include "tests/client/subprocess.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/client/temp_folder.h"

namespace warpcall::testing {
namespace {

std::string Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

ProgramResult RunProgram(const std::string& command) {
  const TempFolder folder;
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");
  const int status = std::system(absl::StrCat(command, " >'", out, "' 2>'", err, "'").c_str());
  return {.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = Load(out),
          .err = Load(err)};
}

}  // namespace warpcall::testing
