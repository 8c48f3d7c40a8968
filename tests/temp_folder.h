// A test's files: a folder that is deleted with its object, and the content of files.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

namespace warpcall::testing {

// Returns the file's content; "" if there is no such file.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Replaces the file at once: nobody reads a part of `text`.
inline void ReplaceFile(const std::string& path, const std::string& text) {
  const std::string written = path + ".new";
  std::ofstream(written) << text;
  if (std::rename(written.c_str(), path.c_str()) != 0) {
    std::perror("rename");
    std::abort();
  }
}

class TempFolder {
 public:
  TempFolder() : path_((std::filesystem::temp_directory_path() / "warpcall.XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) {
      std::perror("mkdtemp");
      std::abort();
    }
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Names of the folder's entries, sorted.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace warpcall::testing
