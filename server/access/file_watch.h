// Tells when files change.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "proto/common/steady_wait.h"

namespace warpcall {

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
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  void Run();

  const std::vector<std::string> files_;
  const std::function<bool()> read_again_;
  const absl::Duration period_;
  std::string seen_;  // the thread's
  SteadyNotification ending_;
  std::thread thread_;
};

}  // namespace warpcall
