#include "client/cli/push/file_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

namespace fs = std::filesystem;

// Between the steps of one save: an editor truncates, writes, renames.
constexpr int kQuietMs = 50;
// Limits the wait for a folder that is never quiet, since a log lies in it.
constexpr int kQuietTurnsMax = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<FileWatch>> FileWatch::Start(const std::vector<std::string>& paths) {
  const int notifier = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (notifier < 0) return absl::ErrnoToStatus(errno, "can't watch files");
  std::unique_ptr<FileWatch> watch(new FileWatch(notifier, eventfd(0, EFD_CLOEXEC)));
  for (const std::string& path : paths) RETURN_IF_ERROR(watch->AddFolderOf(path));
  watch->thread_ = std::thread([raw = watch.get()] { raw->Watch(); });
  return watch;
}

FileWatch::~FileWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stopper_, &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  close(notifier_);
  close(stopper_);
}

absl::Status FileWatch::AddFolderOf(const std::string& path) {
  std::error_code error;  // of a path that is not there, which then stays as it is
  const fs::path place = fs::weakly_canonical(fs::absolute(path, error), error);
  const fs::path folder = place.parent_path();
  const int added = inotify_add_watch(notifier_, folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO);
  if (added < 0) return absl::ErrnoToStatus(errno, absl::StrCat("can't watch ", folder.string()));
  names_[added].insert(place.filename());
  return absl::OkStatus();
}

void FileWatch::Begin(client::Cancellation* work) {
  absl::MutexLock lock(&mutex_);
  saved_ = false;
  work_ = work;
  if (stopped_) CancelWork();
}

bool FileWatch::End() {
  absl::MutexLock lock(&mutex_);
  work_ = nullptr;
  return saved_;
}

bool FileWatch::AwaitSave() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return saved_ || stopped_; };
  mutex_.Await(absl::Condition(&over));
  return !stopped_;
}

void FileWatch::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  CancelWork();
}

void FileWatch::CancelWork() {
  if (work_ != nullptr) work_->Cancel();
}

bool FileWatch::ReadEvents() {
  alignas(inotify_event) char buffer[4096];
  bool relevant = false;
  for (ssize_t bytes; (bytes = read(notifier_, buffer, sizeof(buffer))) > 0;) {
    for (const char* at = buffer; at < buffer + bytes;) {
      inotify_event event;
      std::memcpy(&event, at, sizeof(event));
      const char* const name = at + sizeof(event);
      const auto files = names_.find(event.wd);
      relevant |= (event.mask & IN_Q_OVERFLOW) != 0 ||  // events were lost
                  (event.len > 0 && files != names_.end() && files->second.count(name) > 0);
      at += sizeof(event) + event.len;
    }
  }
  return relevant;
}

void FileWatch::Watch() {
  pollfd events[] = {{stopper_, POLLIN, 0}, {notifier_, POLLIN, 0}};
  while (true) {
    if (poll(events, 2, -1) < 0 && errno != EINTR) return;
    if (events[0].revents != 0) return;
    if (!ReadEvents()) continue;
    for (int turn = 0; turn < kQuietTurnsMax && poll(events, 2, kQuietMs) > 0; ++turn) {
      if (events[0].revents != 0) return;
      ReadEvents();
    }
    absl::MutexLock lock(&mutex_);
    saved_ = true;
    CancelWork();
  }
}

}  // namespace warpcall::cli
