// Notices when files are saved, for `warpcall push --watch`.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "warpcall/client.h"

namespace warpcall::cli {

// Watches the folders of files, since editors put a new file in the place of the old one. A save
// counts when its folder has been quiet for 50 ms. For one thread, but for Stop.
class FileWatch {
 public:
  // The error has the system's reason.
  static absl::StatusOr<std::unique_ptr<FileWatch>> Start(const std::vector<std::string>& paths);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Forgets earlier saves. The next save, or Stop, cancels `work`, which lives until End. To be
  // called before the files are read.
  void Begin(client::Cancellation* work);
  // Returns true if a file was saved since Begin.
  bool End();
  // Waits for a save after the last Begin. False: Stop was called.
  bool AwaitSave();
  // Any thread may call it.
  void Stop();

 private:
  FileWatch(int notifier, int stopper) : notifier_(notifier), stopper_(stopper) {}

  absl::Status AddFolderOf(const std::string& path);
  void Watch();
  // Reads the events that are there. True if one is about a watched file.
  bool ReadEvents();
  void CancelWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int notifier_;                          // of inotify
  const int stopper_;                           // wakes Watch at the end
  std::map<int, std::set<std::string>> names_;  // of files, by the watch of their folder
  absl::Mutex mutex_;
  client::Cancellation* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool saved_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace warpcall::cli
