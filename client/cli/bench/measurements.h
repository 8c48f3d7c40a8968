// A saved benchmark: the output of `warpcall bench --json`.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "warpcall/client.h"

namespace warpcall::cli {

struct MeasuredRow {
  // Names the row, with PinnedName(result).
  std::string shape = "";
  std::string data_type = "";
  std::string device = "";  // empty: its call ended before the server said which
  client::BenchmarkResult result = {};
};

// Conditions of all points that one device measured. Empty or 0 where they are not known.
struct Conditions {
  std::string host = "";
  std::string device = "";  // "cuda:0"
  std::string client_version = "";
  std::string method = "";  // kBenchmarkBurst or kBenchmarkSettled
  // Merges the points' stamps: texts and the start from the first point that has them, the least
  // and the largest clock, and the reasons and dropped samples of all points.
  client::RunStamp stamp = {};
};

struct Measurements {
  std::string name;  // file name
  std::string kernel;
  std::string attributes = "";  // "axis=-1"
  std::map<std::string, Conditions> devices = {};
  std::vector<MeasuredRow> rows = {};
  // Points that were refused, or ended before all their rows were measured, with the reasons.
  std::vector<std::string> unfinished = {};
};

// Returns INVALID_ARGUMENT, in one line with `name`, for text not from `warpcall bench --json`.
absl::StatusOr<Measurements> ToMeasurements(const std::string& name, const nlohmann::json& value);
// Reads a file of at most 64 MiB.
absl::StatusOr<Measurements> ReadMeasurements(const std::string& path);

}  // namespace warpcall::cli
