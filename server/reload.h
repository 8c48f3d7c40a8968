// What SIGHUP does to a server: it reads its files again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace warpcall {

// Not thread-safe.
class Reloader {
 public:
  // `read` reads `file`, makes what stands there count from now on, and says what came of it; on an
  // error everything stays as it was.
  void Add(std::string file, std::function<absl::StatusOr<std::string>()> read);

  // Reads every file. A line of the log for each, whatever the level.
  void ReadAgain() const;

 private:
  struct Source {
    std::string file;
    std::function<absl::StatusOr<std::string>()> read;
  };
  std::vector<Source> sources_;
};

}  // namespace warpcall
