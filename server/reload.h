// What SIGHUP does to a server: it reads its files again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace warpcall {

// Files may be read again by several threads where what is done with them may; not added.
class Reloader {
 public:
  // `read` reads `file`, makes what stands there count from now on, and says what came of it; on an
  // error everything stays as it was.
  void Add(std::string file, std::function<absl::StatusOr<std::string>()> read);

  // Reads every file, or this one. A line of the log for each, whatever the level.
  void ReadAgain() const;
  void ReadAgain(const std::string& file) const;

 private:
  struct Source {
    std::string file;
    std::function<absl::StatusOr<std::string>()> read;
  };
  static void ReadAgain(const Source& source);

  std::vector<Source> sources_;
};

}  // namespace warpcall
