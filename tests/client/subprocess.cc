#include "tests/client/subprocess.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/client/temp_folder.h"

namespace warpcall::testing {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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
