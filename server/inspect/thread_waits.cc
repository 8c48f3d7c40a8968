#include "server/inspect/thread_waits.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace warpcall::inspect {

ThreadWaits::ThreadWaits(std::string folder) : folder_(std::move(folder)) {}

ThreadWaits::~ThreadWaits() { Forget(); }

int64_t ThreadWaits::Ns() {
  // Libraries start threads of their own when they are first called.
  struct stat folder = {};
  if (stat(folder_.c_str(), &folder) == 0 && folder.st_nlink != links_) {
    links_ = folder.st_nlink;
    FindAgain();
  }
  int64_t sum_ns = 0;
  if (Sum(&sum_ns)) return sum_ns;
  // As many threads may have begun since as have ended.
  FindAgain();
  Sum(&sum_ns);
  return sum_ns;
}

bool ThreadWaits::Sum(int64_t* sum_ns) const {
  *sum_ns = 0;
  bool all = true;
  for (const int file : files_) {
    // "644793 55713 2": nanoseconds running, nanoseconds waiting, number of runs.
    char text[128];
    const ssize_t size = pread(file, text, sizeof(text), 0);
    all &= size > 0;
    if (size <= 0) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(absl::string_view(text, static_cast<size_t>(size)), ' ');
    int64_t waited_ns = 0;
    if (words.size() > 1 && absl::SimpleAtoi(words[1], &waited_ns)) *sum_ns += waited_ns;
  }
  return all;
}

void ThreadWaits::FindAgain() {
  Forget();
  DIR* const folder = opendir(folder_.c_str());
  if (folder == nullptr) return;
  while (const dirent* const entry = readdir(folder)) {
    const std::string path = absl::StrCat(folder_, "/", entry->d_name, "/schedstat");
    const int file = entry->d_name[0] == '.' ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file >= 0) files_.push_back(file);
  }
  closedir(folder);
}

void ThreadWaits::Forget() {
  for (const int file : files_) close(file);
  files_.clear();
}

}  // namespace warpcall::inspect
