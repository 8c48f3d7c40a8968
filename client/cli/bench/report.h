// What `warpcall bench` measured, for people and for programs.
//
// JSON: times are in nanoseconds, rates per second, shares 0 to 1.
//
//   kernel, attributes, iterations, warmup_iterations, seed    as asked for; null: the server's
//                                                              default
//   points    one for each device, type and shape:
//     shape, data_type      as on the command line, without braces
//     inputs                {data_type, shape} of each
//     device                that ran it, or that was asked for where the server refused
//     error                 null, or {code, message}: the server refused the point
//     ceiling_bytes_per_second, and results: everything that BenchmarkResponse says, in its order
//
// CSV: a line for each result, or for a point that was refused, after a heading; numbers as exact
// as they came; a field that has none is empty. Quoted as RFC 4180 says, lines end with \n.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

struct BenchPoint {
  std::string shape;  // as text
  DataType data_type = DataType::kFloat32;
  client::BenchmarkCall call;
  absl::StatusOr<client::BenchmarkReport> report = absl::UnknownError("not called");

  // That answered, or else that was asked for, which may be empty.
  const std::string& device() const { return report.ok() ? report->device : call.device; }
};

struct BenchReport {
  std::string kernel;
  std::map<std::string, client::AttributeValue> attributes = {};
  std::vector<BenchPoint> points = {};

  // Not counting points that the server refused without anyone having named a device.
  bool several_devices() const;
};

// "softmax axis=-1".
std::string KernelTitle(const BenchReport& report);

// Those that ran, fastest first, then those that did not, as they came.
std::vector<client::BenchmarkResult> Ranked(const client::BenchmarkReport& report);

std::string ToText(const BenchReport& report);
std::string ToCsv(const BenchReport& report);
nlohmann::json ToJson(const BenchReport& report);

}  // namespace warpcall::cli
