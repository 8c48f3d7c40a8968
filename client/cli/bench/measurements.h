// A benchmark as its file tells of it: what `warpcall bench --json` printed.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/conditions.h"

namespace warpcall::cli {

struct MeasuredRow {
  // Which it is.
  std::string shape = "";
  std::string data_type = "";
  std::string device = "";  // empty: its call ended before the server said which
  std::string implementation = "";
  // Why it did not run; empty when it did.
  std::string error = "";
  double median_ns = 0;
  // The 95 % confidence interval; 0 where it is not known.
  double low_ns = 0;
  double high_ns = 0;
  int64_t samples = 0;
  bool unstable = false;
};

struct Measurements {
  std::string name;  // of the file
  std::string kernel;
  std::string attributes = "";  // "axis=-1"
  std::map<std::string, Conditions> devices = {};
  std::vector<MeasuredRow> rows = {};
  // Points that were refused, or ended before all of their rows were measured, and why.
  std::vector<std::string> unfinished = {};
};

// INVALID_ARGUMENT, in one line with `name`, for what `warpcall bench --json` does not print.
absl::StatusOr<Measurements> ToMeasurements(const std::string& name, const nlohmann::json& value);
// The same of a file, which may be of up to 64 MiB.
absl::StatusOr<Measurements> ReadMeasurements(const std::string& path);

}  // namespace warpcall::cli
