// Ctrl-C while a command works: it ends what is under way, and keeps what there is.
#pragma once

#include <functional>
#include <thread>

namespace warpcall::cli {

// While it lives, the first SIGINT, SIGTERM or SIGHUP calls `act`, on a thread of its own, instead
// of ending the program; the second ends it. A signal that the program was started with ignored
// stays so. One at a time.
class Interrupt {
 public:
  explicit Interrupt(std::function<void(int signal)> act);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // 0: none has come.
  int signal() const;

 private:
  void Watch();

  const std::function<void(int signal)> act_;
  const int event_;
  std::thread thread_;
};

}  // namespace warpcall::cli
