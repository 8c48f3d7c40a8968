// Measures how long this process's threads have waited for a core.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

namespace warpcall::inspect {

// Reads Linux's TID/schedstat for every thread. Used by one thread.
class ThreadWaits {
 public:
  // If `folder` is empty or missing, no thread ever waits.
  explicit ThreadWaits(std::string folder = "/proc/self/task");
  ~ThreadWaits();
  ThreadWaits(const ThreadWaits&) = delete;
  ThreadWaits& operator=(const ThreadWaits&) = delete;

  // Time during which the present threads were ready to run while others ran.
  int64_t Ns();

 private:
  // False when a thread has ended whose file is still open.
  bool Sum(int64_t* sum_ns) const;
  void FindAgain();
  void Forget();

  const std::string folder_;
  nlink_t links_ = 0;  // the folder's; reveals the number of threads
  std::vector<int> files_;
};

}  // namespace warpcall::inspect
