// The side that tries rows: in a process of its own, since a row may end it or never end.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/check/self_check.h"
#include "kernels/registry.h"
#include "server/engine/service_history.h"
#include "server/process/channel.h"
#include "server/runtime/device.h"

namespace warpcall::self_test {

struct Trials {
  const Registry* registry = nullptr;
  Device* device = nullptr;  // where the rows run
  CheckDepth depth = CheckDepth::kQuick;
  std::vector<int> rows = {};  // in this order, all of the device's kind
};

// A report from the child to the server about one row. The reports name each row before it runs, so
// that the server can blame the row for the child's end.
struct Report {
  enum class Kind : uint32_t {
    kNoDevice,  // `text`: why; the last report
    kStarted,   // with `row`
    kPassed,    // `data_types`, `ns`, `rate` where has_rate is not 0
    kFailed,    // `cause`, `text`, `ns`
    kCrashed,   // with `signal`; the last report
  };

  Kind kind = Kind::kStarted;
  int32_t row = -1;
  int32_t signal = 0;
  Unavailability::Cause cause = Unavailability::Cause::kSelfTest;
  int32_t has_rate = 0;
  uint32_t data_types = 0;  // bit t: at least one case of DataType t
  int64_t ns = 0;           // on the host's clock
  ServiceRate rate;
  char text[512] = {};  // ends with a zero
};
static_assert(std::is_trivially_copyable_v<Report>);

// Cuts the text where it does not fit.
void SetText(absl::string_view text, Report* report);
// UNAVAILABLE when the child ended, or sent what is no report: then what it sends next is not to be
// believed either.
absl::StatusOr<Report> ReceiveReport(const process::Channel& channel);

// Returns why a row of this family with such a status is not offered. UNIMPLEMENTED: the row took
// no case. Its library is missing, or has nothing for this machine; likewise kernels that were not
// compiled or are for other machines, and the compiler at run time. Rows of the CPU take some case
// everywhere.
Unavailability::Cause CauseOf(Family family, const absl::Status& status);

// Reports why there is no device.
void ReportNoDevice(const process::Channel& channel, const absl::Status& status);

// Tries each row, measures the rate of the working ones, and reports both. Ends early if the device
// was lost or the server is gone. Signals that end a process are reported with the row.
absl::Status RunTrials(const process::Channel& channel, const Trials& trials);

}  // namespace warpcall::self_test
