#include "server/runtime/cpu/control_group.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace warpcall {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A control group of this process, or one above it, as a folder of files.
struct Group {
  bool first_version = false;
  std::string path;
};

// Returns the groups that limit `controller`, the outermost first in each hierarchy.
std::vector<Group> GroupsOf(absl::string_view controller, const std::string& root) {
  std::vector<Group> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  // "0::/system.slice/warpcalld.service"; of version 1 "9:memory:/docker/0af7".
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2].front() != '/') continue;
    const bool first_version = !parts[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (first_version && std::count(controllers.begin(), controllers.end(), controller) == 0)
      continue;
    std::string top = root + "/sys/fs/cgroup";
    if (first_version) absl::StrAppend(&top, "/", parts[1]);
    groups.push_back({first_version, top});
    for (size_t end = 0; parts[2].size() > 1 && end != std::string::npos;) {
      end = parts[2].find('/', end + 1);
      groups.push_back({first_version, absl::StrCat(top, parts[2].substr(0, end))});
    }
  }
  return groups;
}

// The numbers at the beginning of a file; none where it is missing or says "max".
std::vector<int64_t> NumbersIn(const std::string& path) {
  std::ifstream file(path);
  std::vector<int64_t> numbers;
  int64_t number;
  for (std::string word; file >> word && absl::SimpleAtoi(word, &number);)
    numbers.push_back(number);
  return numbers;
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

// Returns the group's quota of processor time in a period, then the length of the period.
std::vector<int64_t> QuotaAndPeriod(const Group& group) {
  if (!group.first_version) return NumbersIn(group.path + "/cpu.max");
  std::vector<int64_t> numbers = NumbersIn(group.path + "/cpu.cfs_quota_us");
  for (int64_t period : NumbersIn(group.path + "/cpu.cfs_period_us")) numbers.push_back(period);
  return numbers;
}

}  // namespace

int64_t MemoryLimitBytes(const std::string& root) {
  int64_t least = PhysicalBytes(root);
  for (const Group& group : GroupsOf("memory", root)) {
    const char* const file = group.first_version ? "memory.limit_in_bytes" : "memory.max";
    for (const int64_t bytes : NumbersIn(absl::StrCat(group.path, "/", file)))
      least = std::min(least, bytes);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(least))
    least = static_cast<int64_t>(limit.rlim_cur);
  return least;
}

int UsableCpus(int cpus, const std::string& root) {
  double least = cpus;
  for (const Group& group : GroupsOf("cpu", root)) {
    const std::vector<int64_t> numbers = QuotaAndPeriod(group);
    // Version 1 has -1 where there is no quota.
    if (numbers.size() != 2 || numbers[0] <= 0 || numbers[1] <= 0) continue;
    least = std::min(least, static_cast<double>(numbers[0]) / static_cast<double>(numbers[1]));
  }
  return std::max(1, static_cast<int>(std::ceil(least)));
}

int UsableCpus() { return UsableCpus(static_cast<int>(std::thread::hardware_concurrency())); }

int64_t TaskLimit(const std::string& root) {
  int64_t least = -1;
  for (const Group& group : GroupsOf("pids", root))
    for (const int64_t limit : NumbersIn(absl::StrCat(group.path, "/pids.max")))
      if (least < 0 || limit < least) least = limit;
  return least;
}

}  // namespace warpcall
