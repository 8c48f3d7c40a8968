// The side that tries rows: in a process of its own, since a row may end it or never end.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "kernels/check/self_check.h"
#include "kernels/registry.h"
#include "server/runtime/device.h"

namespace warpcall::self_test {

struct Trials {
  const Registry* registry = nullptr;
  Device* device = nullptr;  // where the rows run
  CheckDepth depth = CheckDepth::kQuick;
  std::vector<int> rows = {};  // in this order, all of the device's kind
};

// Why a row of this family is not offered that ended its trials so. UNIMPLEMENTED: it took nothing.
// A library that does is not there, or has nothing for this machine; so it is with kernels that
// were not compiled, with those that are written for other machines, and with the compiler at run
// time. Rows of the CPU take something everywhere.
Unavailability::Cause CauseOf(Family family, const absl::Status& status);

// Says why there is no device.
void ReportNoDevice(int socket, const absl::Status& status);

// Tries each row, measures the rate of those that work, and reports both. Ends early when the
// device was lost or nobody listens. Signals that end a process are reported with the row.
absl::Status RunTrials(int socket, const Trials& trials);

}  // namespace warpcall::self_test
