#include "server/runtime/cpu/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// What the file says; kNoLimit where it is missing or says "max".
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t bytes;
  return file >> text && absl::SimpleAtoi(text, &bytes) ? bytes : kNoLimit;
}

// The least limit of `group` and of those above it, each a folder under `top`.
int64_t LeastLimit(const std::string& top, std::string group, const char* file) {
  int64_t least = LimitIn(absl::StrCat(top, "/", file));
  while (group.size() > 1) {
    least = std::min(least, LimitIn(absl::StrCat(top, group, "/", file)));
    group.resize(group.rfind('/'));
  }
  return least;
}

int64_t PhysicalBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib;
    if (words >> name >> kib && name == "MemTotal:") return kib * 1024;
  }
  return kNoLimit;
}

}  // namespace

int64_t MemoryLimitBytes(const std::string& root) {
  int64_t least = PhysicalBytes(root);
  std::ifstream groups(root + "/proc/self/cgroup");
  // "0::/system.slice/warpcalld.service"; of version 1 "9:memory:/docker/0af7".
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2].front() != '/') continue;
    if (parts[1].empty())
      least = std::min(least, LeastLimit(root + "/sys/fs/cgroup", parts[2], "memory.max"));
    if (parts[1] == "memory")
      least = std::min(
          least, LeastLimit(root + "/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace warpcall
