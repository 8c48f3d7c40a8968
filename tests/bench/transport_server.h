// A server process under measurement: a warpcalld or an echo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/transport_cases.h"
#include "tests/e2e/child_process.h"

namespace warpcall::bench {

// A folder for Unix sockets, removed with what is in it.
class SocketFolder {
 public:
  SocketFolder();
  ~SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  // What a server is to listen on: any free TCP port of loopback, and a Unix socket `name`.
  std::string ListenAddresses(const std::string& name) const;

 private:
  std::string path_;
};

// Thread-safe.
class BenchServer {
 public:
  // Starts `words`, program first, which prints "...serving on TCP,unix:PATH[, metrics on
  // HOST:PORT]"; UNAVAILABLE with what it printed instead. Its stderr goes to ours.
  static absl::StatusOr<std::unique_ptr<BenchServer>> Start(const std::vector<std::string>& words);

  const std::string& address(Transport transport) const {
    return transport == Transport::kTcp ? tcp_ : unix_;
  }
  const std::string& metrics_address() const { return metrics_; }  // empty: it has none

  // User and system time of all of its threads since it began; its own children's not.
  double CpuSeconds() const;
  int64_t ResidentBytes() const;
  // The most that was ever resident.
  int64_t ResidentBytesPeak() const;

  // Ends it as an operator would. OK when it ended with status 0.
  absl::Status Stop();

 private:
  explicit BenchServer(const std::vector<std::string>& words) : process_(words, "") {}

  int64_t ProcKib(const char* name, const char* field) const;

  testing::ChildProcess process_;
  std::string tcp_;
  std::string unix_;
  std::string metrics_;
};

// The path of the program that is running.
std::string OwnProgram();
// The warpcalld beside this program, where there is one; otherwise that of the build.
std::string DefaultWarpcalld();

struct WarpcalldOptions {
  std::string program;
  std::vector<std::string> flags;  // replace what is set for the benchmark
};

// Must be called first by a program that calls StartWarpcalld, which starts that program again to
// become warpcalld: one that ends when its parent does, however that ends, and leaves no GPU taken.
void BecomeServerIfAsked(int argc, char** argv);

// warpcalld on free ports and a Unix socket in `folder`; it logs warnings only.
absl::StatusOr<std::unique_ptr<BenchServer>> StartWarpcalld(const SocketFolder& folder,
                                                            const WarpcalldOptions& options);

}  // namespace warpcall::bench
