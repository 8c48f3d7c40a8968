// Writes the results of `warpcall bench` to stdout and files.
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

// Checks that all outputs can be written and that no two share a file. Returns INVALID_ARGUMENT, or
// the reason why a file can't be opened.
absl::Status CheckOutputs(const BenchOutputs& outputs);

// True if stdout gets text for people.
bool PrintsText(const BenchOutputs& outputs);

// Writes the outputs after all measurements. Text has already been printed point by point, except
// for the comparison. An output that fails does not keep the others from being written; returns the
// first error.
absl::Status WriteOutputs(const BenchOutputs& outputs, const BenchReport& report,
                          const std::optional<Measurements>& baseline);

}  // namespace warpcall::cli
