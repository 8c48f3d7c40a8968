// A real warpcalld, started for a test on free ports of the loopback address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/child_process.h"
#include "tests/server/metrics/metrics_text.h"

namespace warpcall::testing {

inline constexpr int64_t kMib = int64_t{1} << 20;

class ServerProcess {
 public:
  // Starts with `flags` beside free ports, no lame-duck time (unless given) and a log in `log()`.
  // Fails the test when the server does not come up.
  explicit ServerProcess(const std::vector<std::string>& flags = {});
  // Ends it, the hard way if Stop was not called.
  ~ServerProcess();

  const std::string& address() const { return address_; }
  // Until it has tried all rows, with which its devices have work of their own till then.
  void AwaitRows() const;
  // HOST:PORT of /metrics and its neighbours.
  std::string metrics_address() const { return absl::StrCat("127.0.0.1:", metrics_port_); }
  pid_t pid() const { return process_->pid(); }

  void Signal(int signal);
  // SIGTERM, then its exit status (128 + n after signal n).
  int Stop();
  int Wait();

  // HTTP GET on the metrics port: status code and body; code 0 when nothing answers.
  std::pair<int, std::string> Get(const std::string& path) const { return Http("GET", path, ""); }
  // HTTP PUT likewise.
  std::pair<int, std::string> Put(const std::string& path, const std::string& body) const {
    return Http("PUT", path, body);
  }
  Samples Metrics() const { return ParseMetricsText(Get("/metrics").second).samples; }
  // SumOf in a new scrape. Compare growing values within one scrape.
  double Sum(const std::string& name, const std::vector<std::string>& labels = {}) const {
    return SumOf(Metrics(), name, labels);
  }

  // Returns the log so far. A thread of its own
  // writes each line, some time after the event.
  std::string log() const;
  // Returns true once `text` stands in the log.
  bool Logs(const std::string& text) const;
  int64_t ResidentBytes() const;
  // The most that it ever was.
  int64_t PeakResidentBytes() const;

 private:
  std::pair<int, std::string> Http(const std::string& method, const std::string& path,
                                   const std::string& body) const;
  int64_t ProcBytes(const char* name, const char* field) const;

  std::unique_ptr<ChildProcess> process_;
  std::string address_;
  int metrics_port_ = 0;
  std::string log_path_;
};

}  // namespace warpcall::testing
