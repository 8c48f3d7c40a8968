// No row is offered on a machine where it has not passed its self-test. Child processes try the
// rows and report each. When a row ends its child, or never ends, the last report names the row,
// and another child goes on with the rows after it. Rows that are slow to plan load
// libraries and compilers, which takes many times as long as all others together: they come last,
// when the server serves already.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/registry.h"
#include "server/engine/clock.h"
#include "server/engine/service_history.h"
#include "server/process/child.h"
#include "server/self_test/child.h"

namespace warpcall::self_test {

// The result of one implementation's trials.
struct Verdict {
  int row = -1;
  std::string device;  // on which it was tried
  Unavailability unavailable = {};
  std::vector<DataType> data_types = {};  // with at least one right case
  int64_t ns = 0;                         // duration of the trials; 0 if they did not end
  bool has_rate = false;
  ServiceRate rate = {};
};

class SelfTest {
 public:
  struct Subject {
    std::string device;
    DeviceKind kind = DeviceKind::kCpu;
    int children = 1;  // that try its rows at once, until the server serves
  };
  struct Options {
    std::vector<Subject> subjects;  // one of each kind of device
    // Starts a child that tries `rows` on `device` and reports them (RunTrials). Thread-safe.
    std::function<absl::StatusOr<std::unique_ptr<process::Child>>(const std::string& device,
                                                                  const std::vector<int>& rows)>
        start;
    // A row hangs once it has kept the machine and the clock busy for this long. On a machine busy
    // with other work, six times as long by the clock alone.
    int64_t row_ns_max = 10'000'000'000;
    // Called when a child begins with a row that Await waits for, the `number`th of `count`; with
    // -1 when all have their verdicts. Thread-safe.
    std::function<void(int row, int number, int count)> progress = [](int, int, int) {};
  };

  // Starts to try the rows that are not slow to plan. `registry` outlives it; until Await nothing
  // of it changes.
  SelfTest(const Registry& registry, Options options);
  // Ends what still runs.
  ~SelfTest();

  // Waits for the end of the started trials. Returns one verdict, by id, for each row tried since
  // the last Await and not reported by TryOthers.
  std::vector<Verdict> Await();

  // The rows that are slow to plan, in the order in which TryOthers tries them: by kernel, those
  // first of which nothing else runs on the device.
  const std::vector<int>& others() const { return others_; }
  // Starts to try them, one after the other. `tell` gets all verdicts of a kernel on one kind of
  // device at once, so that its rows are offered from one moment on. The last call is for the last
  // kernel. One thread at a time calls it. REQUIRES: Await has returned.
  using Tell = std::function<void(std::vector<Verdict>)>;
  void TryOthers(Tell tell);

 private:
  class Watch;  // detects a row that takes too long
  // Takes the verdicts of one thread's rows.
  using Take = std::function<void(Verdict)>;

  // Tries `rows` with as many children as it takes.
  void TryAll(const Subject& subject, std::vector<int> rows, const Take& take);
  // Tries `rows` with one child until one ends it; removes the finished ones. CANCELLED if the
  // self-test is destroyed, other errors if something else than a row ended the child.
  absl::Status TrySome(const Subject& subject, std::vector<int>* rows, const Take& take);
  absl::StatusOr<Report> Next(const process::Channel& channel, const Watch& watch) const;
  void Keep(Verdict verdict) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReportBegun(int row) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries those of others_ that are for `subject`.
  void TryOthersOf(const Subject& subject);

  const Registry& registry_;
  const Options options_;
  const std::vector<int> others_;
  const int stop_;         // an eventfd, readable once the self-test ends
  const int first_count_;  // rows of all subjects that are not others_
  absl::Mutex mutex_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Verdict> verdicts_ ABSL_GUARDED_BY(mutex_);  // that Await has not returned
  absl::Mutex telling_;
  Tell tell_ ABSL_GUARDED_BY(telling_);  // TryOthers'
  std::vector<std::thread> threads_;     // last: they use the others
};

// Returns the rows of a device kind whose ops have cases, and whose `slow_to_plan` is as given.
std::vector<int> RowsToTry(const Registry& registry, DeviceKind kind, bool slow_to_plan);

// Rows that have no rate get that of a row of their kernel, family and device kind.
void ShareRates(const Registry& registry, std::vector<Verdict>* verdicts);

}  // namespace warpcall::self_test
