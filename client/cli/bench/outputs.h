// Where `warpcall bench` puts what it measured: stdout and files.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/cli/bench/measurements.h"
#include "client/cli/bench/report.h"

namespace warpcall::cli {

// Names of files; "-" is stdout, which one of them may have in place of the table; empty: none.
struct BenchOutputs {
  std::string csv;
  std::string plot;  // SVG
  bool json = false;
  std::string baseline;  // is read; see Measurements
};

// Whether all can be written, and none in place of another. INVALID_ARGUMENT, or why a file can't
// be opened.
absl::Status CheckOutputs(const BenchOutputs& outputs);

// Whether people read stdout.
bool PrintsText(const BenchOutputs& outputs);

// What is left to do when all is measured. Text has been printed by then, point by point, but for
// the comparison. An output that fails keeps no other from being written; the first error is
// returned.
absl::Status WriteOutputs(const BenchOutputs& outputs, const BenchReport& report,
                          const std::optional<Measurements>& baseline);

}  // namespace warpcall::cli
