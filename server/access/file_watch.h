// Tells when files change.
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

// Looks at files and has them read on a thread of its own, which a file system that hangs may hold
// up: nobody else waits for it. Thread-safe.
class FileWatch {
 public:
  // What tells files' states apart.
  static std::string StatesOf(const std::vector<std::string>& files);

  // Looks at `files` once a period and calls `read_again`, on a thread of its own, when one of them
  // is another, or longer, or was written since they were as `seen` has it, StatesOf() before they
  // were read: also by a rename, or where a link leads elsewhere.
  // Where that fails, which may be for reasons outside of them (a certificate that counts from some
  // seconds on, no free descriptor), it is called anew after 1, 2, 4 and so on up to 64 periods,
  // and then each 64, until it succeeds.
  FileWatch(std::vector<std::string> files, std::string seen, std::function<bool()> read_again,
            absl::Duration period = absl::Seconds(1));
  // Waits for what is being read.
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Has `read_again` called soon, whether or not the files have changed. Lets go of `until_read`
  // when it has returned.
  void ReadNow(std::shared_ptr<void> until_read = nullptr);
  // For how long it has been looking or reading without a pause.
  absl::Duration busy_for() const;
  // Begins to end. Whether it has ended within `timeout`: as long as it has not, what `read_again`
  // uses must live.
  bool End(absl::Duration timeout);

 private:
  void Run();
  // What ReadNow asked for since the turn before.
  struct Asked {
    bool to_read = false;
    std::vector<std::shared_ptr<void>> until_read;
  };
  // Waits for the next look; false: there is none.
  bool AwaitTurn(Asked* asked);

  const std::vector<std::string> files_;
  const std::function<bool()> read_again_;
  const absl::Duration period_;
  std::string seen_;  // the thread's
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
