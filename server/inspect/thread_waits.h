// How long this process's threads have waited for a core.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

namespace warpcall::inspect {

// As Linux tells it: TID/schedstat for every thread. Used by one thread.
class ThreadWaits {
 public:
  // Nothing in `folder`, or no folder: nobody ever waits.
  explicit ThreadWaits(std::string folder = "/proc/self/task");
  ~ThreadWaits();
  ThreadWaits(const ThreadWaits&) = delete;
  ThreadWaits& operator=(const ThreadWaits&) = delete;

  // For which the threads that there are were ready to run, and others did.
  int64_t Ns();

 private:
  // False when a thread has ended whose file is still open.
  bool Sum(int64_t* sum_ns) const;
  void FindAgain();
  void Forget();

  const std::string folder_;
  nlink_t links_ = 0;  // of the folder, by which the number of threads is known
  std::vector<int> files_;
};

}  // namespace warpcall::inspect
