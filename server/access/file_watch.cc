#include "server/access/file_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

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
  WARPCALL_DCHECK(read_again_ != nullptr && period_ > absl::ZeroDuration());
  thread_ = std::thread([this] { Run(); });
}

FileWatch::~FileWatch() {
  End(absl::ZeroDuration());
  thread_.join();
}

void FileWatch::ReadNow(std::shared_ptr<void> until_read) {
  const absl::MutexLock lock(&mutex_);
  asked_ = true;
  until_read_.push_back(std::move(until_read));
  changed_.SignalAll();
}

absl::Duration FileWatch::busy_for() const {
  const absl::MutexLock lock(&mutex_);
  if (busy_since_ == SteadyTime::max()) return absl::ZeroDuration();
  return -UntilSteady(busy_since_);
}

bool FileWatch::End(absl::Duration timeout) {
  const SteadyTime give_up = SteadyAfter(timeout);
  const absl::MutexLock lock(&mutex_);
  ending_ = true;
  changed_.SignalAll();
  while (!ended_)
    if (changed_.WaitUntil(&mutex_, give_up)) return ended_;
  return true;
}

bool FileWatch::AwaitTurn(Asked* asked) {
  *asked = {};  // was read
  const SteadyTime next = SteadyAfter(period_);
  const absl::MutexLock lock(&mutex_);
  busy_since_ = SteadyTime::max();
  while (!ending_ && !asked_ && !changed_.WaitUntil(&mutex_, next)) {
  }
  *asked = {std::exchange(asked_, false), std::exchange(until_read_, {})};
  ended_ = ending_;
  if (ended_) changed_.SignalAll();
  busy_since_ = SteadyAfter(absl::ZeroDuration());
  return !ended_;
}

void FileWatch::Run() {
  int64_t wait = 0;  // periods from the last failure to the next try; 0: it did not fail
  int64_t waited = 0;
  for (Asked asked; AwaitTurn(&asked);) {
    std::string now = StatesOf(files_);
    const bool changed = asked.to_read || now != seen_;
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
