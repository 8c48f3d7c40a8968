// Tells people, on stderr, that work which takes more than a second is still going on.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall::cli {

// While it lives, shows `what` and the time so far after 1, 2, 4, 8 ... seconds, each second on a
// terminal, where a line is rewritten in place and gone at the end. Every line ends with " s so
// far".
class Progress {
 public:
  explicit Progress(std::string what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Prints news of the work: at once, or when the first second is over.
  void Show(std::string news);
  // Shows the news in the newest Progress that exists; does nothing if there is none. For callers
  // that have no Progress of their own.
  static void ShowInLast(std::string news);

 private:
  void Report();
  void PrintNews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Print(const std::string& text) const;

  const std::string what_;
  Progress* const before_;  // the one created before it, which outlives it
  const absl::Time start_ = absl::Now();
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_shown_ ABSL_GUARDED_BY(mutex_) = false;  // the first second is over
  std::vector<std::string> news_ ABSL_GUARDED_BY(mutex_);
  std::string newest_ ABSL_GUARDED_BY(mutex_);  // the last news that was shown, and a comma
  std::thread thread_;
};

}  // namespace warpcall::cli
