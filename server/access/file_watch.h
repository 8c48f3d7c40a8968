// Watches files for changes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/common/steady_wait.h"

namespace warpcall {

// Checks files and has them read on its own thread. Only that thread waits for a file system that
// hangs. Thread-safe.
class FileWatch {
 public:
  // Identity, size and times of `files`; differs when a file was replaced or written.
  static std::string StatesOf(const std::vector<std::string>& files);

  // Compares StatesOf(`files`) with `seen` once a period and calls `read_again` on its own thread
  // when they differ. `seen` is StatesOf() from before the files were first read. Renames and links
  // that point elsewhere count as changes. When `read_again` fails, the thread calls it again after
  // 1, 2, 4 and so on up to 64 periods, and then every 64, until it succeeds. A failure may have
  // causes outside the files, such as a certificate that is not valid yet or a lack of free
  // descriptors.
  FileWatch(std::vector<std::string> files, std::string seen, std::function<bool()> read_again,
            absl::Duration period = absl::Seconds(1));
  // Waits until `read_again` returns.
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Has `read_again` called soon, even if no file has changed. Releases `until_read` when
  // `read_again` has returned.
  void ReadNow(std::shared_ptr<void> until_read = nullptr);
  // How long the thread has been checking or reading without a pause.
  absl::Duration busy_for() const;
  // Makes the thread end and waits up to `timeout`. Returns true if the thread has ended; otherwise
  // the objects that `read_again` uses must stay alive.
  bool End(absl::Duration timeout);

 private:
  void Run();
  // Requests of ReadNow since the previous turn.
  struct Asked {
    bool to_read = false;
    std::vector<std::shared_ptr<void>> until_read;
  };
  // Waits for the next turn; returns false if the thread is to end.
  bool AwaitTurn(Asked* asked);

  const std::vector<std::string> files_;
  const std::function<bool()> read_again_;
  const absl::Duration period_;
  std::string seen_;  // used by the thread only
  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<void>> until_read_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime busy_since_ ABSL_GUARDED_BY(mutex_) = SteadyTime::max();
  std::thread thread_;  // last: runs on all of the above
};

}  // namespace warpcall
