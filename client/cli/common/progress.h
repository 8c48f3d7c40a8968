// Tells people, on stderr, that work which takes more than a second is still going on.
#pragma once

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace warpcall::cli {

// From its birth on, prints `what` and the time so far after 1, 2, 4, 8 ... seconds, until it dies.
class Progress {
 public:
  explicit Progress(std::string what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

 private:
  void Report();

  const std::string what_;
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace warpcall::cli
