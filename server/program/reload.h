// Files that a server reads again while it serves: when they change, and by SIGHUP.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/file_watch.h"
#include "server/engine/metrics_sink.h"

namespace warpcall {

// Reads each on a thread of its own: one that hangs holds up neither the others nor the server's
// end. All functions are for one thread, but failures().
class Reloader {
 public:
  // `flag` names `file`. It is read again when one of `watched` is not as `seen` has it
  // (FileWatch::StatesOf), and when everything is. `read` reads it, makes what stands there count
  // from now on, and says what came of it; on an error everything stays as it was.
  struct File {
    std::string flag;  // "token_file"
    std::string file;
    std::vector<std::string> watched = {};
    std::string seen = {};
  };
  void Add(File file, std::function<absl::StatusOr<std::string>()> read);

  // Begins to watch. REQUIRES: nothing is added from now on.
  void Start();
  // Has every file read again, soon. A line of the log for each, whatever the level. `done` is
  // called once all were read, or will not be, by the thread that read the last.
  void ReadAgain(std::function<void()> done = [] {});
  // Logs and counts files that take longer than this to be read, once for each time.
  static constexpr absl::Duration kHangs = absl::Seconds(10);
  void ReportHanging(absl::Duration longer_than = kHangs);
  // Ends what Start began. False when a file is still being read by then: what reads it is in use.
  bool End(absl::Duration timeout);

  // How often each could not be read, by its flag.
  std::vector<LabelledCount> failures() const;

 private:
  struct Source {
    File file;
    std::function<absl::StatusOr<std::string>()> read;
    std::atomic<int64_t> failures{0};
    bool reported = false;                       // that it hangs
    std::unique_ptr<FileWatch> watch = nullptr;  // last: uses the others
  };
  static bool Read(Source* source);

  std::vector<std::unique_ptr<Source>> sources_;
};

}  // namespace warpcall
