// What SIGHUP does to a server: it reads its files again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/metrics_sink.h"

namespace warpcall {

// Files may be read again by several threads where what is done with them may; not added.
class Reloader {
 public:
  // `flag` names `file`. `read` reads it, makes what stands there count from now on, and says what
  // came of it; on an error everything stays as it was.
  struct File {
    std::string flag;  // "token_file"
    std::string file;
  };
  void Add(File file, std::function<absl::StatusOr<std::string>()> read);

  // Reads every file, or this one. A line of the log for each, whatever the level.
  void ReadAgain() const;
  // Whether it could.
  bool ReadAgain(const std::string& file) const;

  // How often each could not be read, by its flag.
  std::vector<LabelledCount> failures() const;

 private:
  struct Source {
    File file;
    std::function<absl::StatusOr<std::string>()> read;
    std::unique_ptr<std::atomic<int64_t>> failures;
  };
  static bool ReadAgain(const Source& source);

  std::vector<Source> sources_;
};

}  // namespace warpcall
