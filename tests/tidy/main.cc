// tidy ROOT: checks every source of the repository at ROOT against the house rules. Prints one line
// per finding, "path:line: what and the limit". Exit status 0 when there are none, 1 when there
// are, 2 when ROOT cannot be read.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "tests/tidy/rules.h"

namespace warpcall::tidy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"kernels", "server", "client", "proto", "tests", "deploy"};

bool IsSkipped(const std::string& folder_name) {
  return folder_name.front() == '.' || folder_name == "build" || folder_name == "__pycache__";
}

absl::StatusOr<Source> Read(const fs::path& root, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  return MakeSource(path.lexically_relative(root).generic_string(), std::move(text));
}

absl::StatusOr<std::vector<fs::path>> FindSources(const fs::path& root) {
  std::vector<fs::path> paths = {root / "CMakeLists.txt"};
  for (const char* folder : kFolders) {
    std::error_code error;
    for (auto entry = fs::recursive_directory_iterator(root / folder, error);
         !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      std::error_code ignored;  // a file that vanished is no source
      if (entry->is_directory(ignored)) {
        if (IsSkipped(name)) entry.disable_recursion_pending();
      } else if (IsSource(name)) {
        paths.push_back(entry->path());
      }
    }
    if (error) {
      return absl::NotFoundError(
          absl::StrCat("cannot read ", (root / folder).string(), ": ", error.message()));
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::vector<Source>> ReadSources(const fs::path& root) {
  ASSIGN_OR_RETURN(const std::vector<fs::path> paths, FindSources(root));
  std::vector<Source> sources;
  for (const fs::path& path : paths) {
    ASSIGN_OR_RETURN(Source source, Read(root, path));
    sources.push_back(std::move(source));
  }
  return sources;
}

int Main(const fs::path& root) {
  const absl::StatusOr<std::vector<Source>> sources = ReadSources(root);
  if (!sources.ok()) {
    std::fprintf(stderr, "tidy: %s\n", sources.status().ToString().c_str());
    return 2;
  }
  const std::vector<Finding> findings = CheckAll(*sources);
  for (const Finding& finding : findings) std::printf("%s\n", ToString(finding).c_str());
  std::printf("tidy: %zu files, %zu findings\n", sources->size(), findings.size());
  return findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace warpcall::tidy

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tidy ROOT\n");
    return 2;
  }
  return warpcall::tidy::Main(argv[1]);
}
