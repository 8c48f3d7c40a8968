#include "server/access/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {

FileWatch::FileWatch(std::vector<std::string> files, std::function<void()> changed,
                     absl::Duration period)
    : files_(std::move(files)), changed_(std::move(changed)), period_(period), seen_(States()) {
  thread_ = std::thread([this] { Run(); });
}

FileWatch::~FileWatch() {
  ending_.Notify();
  thread_.join();
}

void FileWatch::Run() {
  while (!ending_.WaitForNotificationWithTimeout(period_)) {
    std::string now = States();
    if (now == seen_) continue;
    seen_ = std::move(now);
    changed_();
  }
}

std::string FileWatch::States() const {
  std::string states;
  for (const std::string& file : files_) {
    struct stat found = {};
    if (stat(file.c_str(), &found) != 0) found = {};
    absl::StrAppend(&states, found.st_dev, " ", found.st_ino, " ", found.st_size, " ",
                    found.st_mtim.tv_sec, " ", found.st_mtim.tv_nsec, " ", found.st_ctim.tv_sec,
                    " ", found.st_ctim.tv_nsec, "\n");
  }
  return states;
}

}  // namespace warpcall
