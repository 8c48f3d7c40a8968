// Handles Ctrl-C: ends the work in progress and keeps the results so far.
#pragma once

#include <functional>
#include <thread>

namespace warpcall::cli {

// While it lives, the first SIGINT, SIGTERM or SIGHUP calls `act`, on a thread of its own, instead
// of ending the program; the second ends the program. A signal that was ignored when the program
// started stays ignored. At most one Interrupt exists at a time.
class Interrupt {
 public:
  explicit Interrupt(std::function<void(int signal)> act);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal received; 0: none.
  int signal() const;

 private:
  void Watch();

  const std::function<void(int signal)> act_;
  const int event_;
  std::thread thread_;
};

}  // namespace warpcall::cli
