// The report's JSON and CSV.
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/bench/report.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/csv.h"
#include "client/cli/common/output.h"
#include "client/cli/common/version.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

json OrNull(int64_t value) { return value > 0 ? json(value) : json(); }
json OrNull(double value) { return value > 0 ? json(value) : json(); }
json OrNull(const std::string& text) { return text.empty() ? json() : json(text); }

json ToJson(const BenchPoint& point, const client::BenchmarkResult& result) {
  json value = cli::ToJson(result);
  value["notes"] = Notes(point, result);
  return value;
}

// Null: the server sent no stamp.
json ToJson(const client::RunStamp& stamp) {
  return stamp.started_unix_ns() == 0 ? json() : cli::ToJson(stamp);
}

json ToJson(const BenchReport& report, const BenchPoint& point) {
  json inputs = json::array();
  for (const client::TensorSpec& input : point.call.inputs)
    inputs.push_back({{"data_type", DataTypeName(input.data_type)}, {"shape", input.shape}});
  const auto kind = report.server.device_kinds.find(point.device());
  json value = {
      {"shape", point.shape},
      {"data_type", DataTypeName(point.data_type)},
      {"inputs", std::move(inputs)},
      {"device", point.device()},
      {"device_kind", kind == report.server.device_kinds.end() ? json() : json(kind->second)},
      {"error", nullptr},
      {"ceiling_bytes_per_second", OrNull(point.report.ceiling_bytes_per_second())},
      {"flops_ceiling", OrNull(point.report.flops_ceiling())},
      {"stamp", ToJson(point.report.stamp())},
      {"results", json::array()}};
  if (!point.status.ok())
    value["error"] = {{"code", absl::StatusCodeToString(point.status.code())},
                      {"message", std::string(point.status.message())}};
  if (report.tunes)
    value["auto"] = point.served.empty() ? json()
                                         : json{{"implementation", point.served},
                                                {"chosen_because", point.served_because}};
  for (const client::BenchmarkResult& result : point.report.results())
    value["results"].push_back(ToJson(point, result));
  return value;
}

// The names of JSON's values, but for the attributes, which are one text.
constexpr const char* kColumns[] = {
    "kernel", "shape", "data_type", "device", "ceiling_bytes_per_second", "implementation",
    "family", "error", "mean_ns", "median_ns", "min_ns", "p90_ns", "bytes_per_second",
    "flops_per_second", "fraction_of_ceiling", "relative_error", "checked_elements", "iterations",
    "launches_per_iteration", "bytes_moved", "flops", "theoretical_occupancy", "waves",
    "gpu_kernels", "p10_ns", "median_low_ns", "median_high_ns", "noise", "unstable", "verdict",
    "max_error", "predicted_ns", "notes", "variant",
    // Values of the point; empty where the server sent none.
    "attributes", "seed", "flops_ceiling", "host", "device_kind", "device_description", "driver",
    "cuda", "server_version", "client_version", "sm_clock_mhz_min", "sm_clock_mhz_max",
    "memory_clock_mhz", "temperature_celsius", "power_watts", "throttle_reasons", "samples_dropped",
    "started_unix_ns"};

std::string Line(const json& values) {
  std::vector<std::string> fields;
  for (const char* const column : kColumns)
    fields.push_back(CsvField(values.value(column, json())));
  return CsvLine(fields);
}

// Returns the values that each line of a point repeats, by column. A 0 in the stamp means that the
// server does not know the value, except for the dropped samples.
json PlaceValues(const BenchReport& report, const BenchPoint& point) {
  json values = ToJson(report, point);
  values.erase("results");
  values["error"] = nullptr;
  for (const auto& [name, value] : values["stamp"].items())
    if (value != 0 || name == "samples_dropped") values[name] = value;
  if (values.value("server_version", "").empty()) values["server_version"] = report.server.version;
  std::vector<std::string> attributes;
  for (const auto& [name, value] : report.attributes)
    attributes.push_back(absl::StrCat(name, "=", AttributeText(value)));
  values.update({{"kernel", report.kernel},
                 {"attributes", absl::StrJoin(attributes, " ")},
                 {"seed", point.call.seed},
                 {"host", report.server.host},
                 {"client_version", ClientVersion()}});
  return values;
}

// Only figures that were measured: none of a row that did not run, and no errors of a result that
// was compared with nothing.
json ResultValues(const BenchPoint& point, const client::BenchmarkResult& result) {
  if (!result.error().empty())
    return {{"implementation", result.implementation()},
            {"family", result.family()},
            {"variant", result.launch().variant()},
            {"error", result.error()},
            {"predicted_ns", OrNull(result.predicted_ns())}};
  json values = ToJson(point, result);
  values["predicted_ns"] = nullptr;
  if (result.checked_elements() == 0) values["relative_error"] = values["max_error"] = nullptr;
  values.update(json(values["launch"]));
  return values;
}

void AppendPoint(const BenchReport& report, const BenchPoint& point, std::string* csv) {
  json place = PlaceValues(report, point);
  for (const client::BenchmarkResult& result : Ranked(point.report)) {
    json line = place;
    line.update(ResultValues(point, result));
    absl::StrAppend(csv, Line(line));
  }
  if (point.status.ok()) return;
  place["ceiling_bytes_per_second"] = nullptr;
  place["error"] =
      absl::StrCat(absl::StatusCodeToString(point.status.code()), ": ", point.status.message());
  absl::StrAppend(csv, Line(place));
}

}  // namespace

json ToJson(const BenchReport& report) {
  json attributes = json::object();
  for (const auto& [name, value] : report.attributes) attributes[name] = ToJson(value);
  json points = json::array();
  for (const BenchPoint& point : report.points) points.push_back(ToJson(report, point));
  const client::BenchmarkCall& call = report.points[0].call;
  return {{"kernel", report.kernel},
          {"attributes", std::move(attributes)},
          {"iterations", OrNull(int64_t{call.iterations})},
          {"warmup_iterations", OrNull(int64_t{call.warmup_iterations})},
          {"seed", call.seed},
          {"max_noise", OrNull(call.max_noise)},
          {"timeout_ns", OrNull(absl::ToInt64Nanoseconds(call.row_timeout))},
          {"client_version", ClientVersion()},
          {"server",
           {{"address", report.server.address},
            {"host", OrNull(report.server.host)},
            {"version", OrNull(report.server.version)}}},
          {"points", std::move(points)}};
}

std::string ToCsv(const BenchReport& report) {
  std::string csv = CsvLine({std::begin(kColumns), std::end(kColumns)});
  for (const BenchPoint& point : report.points) AppendPoint(report, point, &csv);
  return csv;
}

}  // namespace warpcall::cli
