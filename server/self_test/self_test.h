// No row is offered on a machine where it has not passed its self-test. Child processes try the
// rows, one for each kind of device, and tell of each; a row that ends its child, or does not come
// to an end, is known by the last report, and another child goes on with the rows after it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/engine/service_history.h"
#include "server/self_test/report.h"

namespace warpcall::self_test {

// What became of one row.
struct Verdict {
  int row = -1;
  std::string device;  // that it was tried on
  Unavailability unavailable = {};
  std::vector<DataType> data_types = {};  // that at least one case was right in
  int64_t ns = 0;                         // that the trials took; 0 where they came to no end
  bool has_rate = false;
  ServiceRate rate = {};
};

class SelfTest {
 public:
  struct Subject {
    std::string device;
    DeviceKind kind = DeviceKind::kCpu;
  };
  struct Options {
    std::vector<Subject> subjects;  // one of each kind of device
    // Starts a child that tries `rows` on `device`: this side's end of a socket, at whose other end
    // RunTrials reports. The child ends when this end is closed.
    std::function<absl::StatusOr<int>(const std::string& device, const std::vector<int>& rows)>
        start;
    // A row hangs when it has kept the machine, and the clock, busy for so long; or for six times
    // as long by the clock alone, since a busy machine may not let it.
    int64_t row_ns_max = 10'000'000'000;
  };

  // Starts. `registry` outlives it and does not change before Await.
  SelfTest(const Registry& registry, Options options);
  // Ends what still runs.
  ~SelfTest();

  // One verdict for each row of the subjects' kinds whose op has cases, by id.
  std::vector<Verdict> Await();

 private:
  class Watch;  // tells when a row takes too long

  void TryAll(const Subject& subject, std::vector<Verdict>* verdicts);
  // Tries `rows` with one child until one ends it; takes out those that it was done with.
  // CANCELLED when nobody waits, other errors when it was no row that ended the child.
  absl::Status TrySome(const Subject& subject, std::vector<int>* rows,
                       std::vector<Verdict>* verdicts);
  absl::StatusOr<Report> Next(int socket, const Watch& watch) const;

  const Registry& registry_;
  const Options options_;
  const int stop_;                              // an eventfd, readable when nobody waits any more
  std::vector<std::vector<Verdict>> verdicts_;  // per subject
  std::vector<std::thread> threads_;            // last: they use the others
};

// The rows that a self-test on `kind` tries, references first: they judge the others.
std::vector<int> RowsToTry(const Registry& registry, DeviceKind kind);

// Rows that have no rate get that of a row of their kernel, family and device kind.
void ShareRates(const Registry& registry, std::vector<Verdict>* verdicts);

}  // namespace warpcall::self_test
