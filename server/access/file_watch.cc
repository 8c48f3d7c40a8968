#include "server/access/file_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {

namespace {

constexpr int64_t kPeriodsBetweenTriesMax = 64;

}  // namespace

FileWatch::FileWatch(std::vector<std::string> files, std::string seen,
                     std::function<bool()> read_again, absl::Duration period)
    : files_(std::move(files)),
      read_again_(std::move(read_again)),
      period_(period),
      seen_(std::move(seen)) {
  thread_ = std::thread([this] { Run(); });
}

FileWatch::~FileWatch() {
  ending_.Notify();
  thread_.join();
}

void FileWatch::Run() {
  int64_t wait = 0;  // periods from the last failure to the next try; 0: it did not fail
  int64_t waited = 0;
  while (!ending_.WaitFor(period_)) {
    std::string now = StatesOf(files_);
    const bool changed = now != seen_;
    if (!changed && (wait == 0 || ++waited < wait)) continue;
    seen_ = std::move(now);
    wait = read_again_() ? 0 : changed ? 1 : std::min(2 * wait, kPeriodsBetweenTriesMax);
    waited = 0;
  }
}

std::string FileWatch::StatesOf(const std::vector<std::string>& files) {
  std::string states;
  for (const std::string& file : files) {
    struct stat found = {};
    if (stat(file.c_str(), &found) != 0) found = {};
    absl::StrAppend(&states, found.st_dev, " ", found.st_ino, " ", found.st_size, " ",
                    found.st_mtim.tv_sec, " ", found.st_mtim.tv_nsec, " ", found.st_ctim.tv_sec,
                    " ", found.st_ctim.tv_nsec, "\n");
  }
  return states;
}

}  // namespace warpcall
