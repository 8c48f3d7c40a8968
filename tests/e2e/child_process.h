// A program started beside the test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace warpcall::testing {

class ChildProcess {
 public:
  // Starts `words` (program first) with stderr in `log_path` (empty: inherited) and waits for the
  // first line on its stdout, "" when it ended without one. It ends when the thread that started it
  // does, however that ends: nothing is left running, and no GPU taken.
  ChildProcess(std::vector<std::string> words, const std::string& log_path);
  // Ends it, the hard way if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& first_line() const { return first_line_; }
  pid_t pid() const { return pid_; }

  void Signal(int signal) const;
  // Exit status, or 128 + n after signal n.
  int Wait();

 private:
  pid_t pid_ = -1;
  std::string first_line_;
};

}  // namespace warpcall::testing
