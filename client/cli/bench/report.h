// What `warpcall bench` measured, for people and for programs.
//
// JSON: times are in nanoseconds, rates per second, shares 0 to 1, types as "float32".
//
//   kernel, attributes, iterations, warmup_iterations, seed, max_noise, timeout_ns
//                         as asked for; null: the server's default
//   client_version
//   server    {address, host, version}; null where the server did not say
//   points    one for each device, type and shape, of `warpcall tune` with "auto": what runs from
//             then on, {implementation, chosen_because}; null where the server did not say:
//     shape, data_type      as on the command line, without braces
//     inputs                {data_type, shape} of each
//     device                that ran it, or that was asked for where nothing did
//     device_kind           "cpu" or "cuda"; null where it is not known
//     error                 null, or {code, message}: the server refused the point, or the call
//                           ended before all rows were measured; `results` has those that were
//     ceiling_bytes_per_second, flops_ceiling, stamp (RunStamp), and results: everything that
//                           BenchmarkResponse says, in its order; null what has not come or is not
//                           known; and of each result
//       notes               what must be known to read its figures, in sentences
//
// CSV: a line for each result, and one for a point that the server refused or that ended early,
// after a heading; numbers as exact as they came; a field that has none is empty. Quoted as RFC
// 4180 says, lines end with \n. New columns are added at the end.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

struct BenchPoint {
  std::string shape = "";  // as text
  DataType data_type = DataType::kFloat32;
  client::BenchmarkCall call = {};
  bool asked = false;  // of the server; not where the command was interrupted before
  // How the call ended; `report` has what came before, whatever that was.
  absl::Status status = absl::CancelledError("not measured");
  client::BenchmarkReport report = {};
  // Of a problem that was tuned: what runs from then on, and why. Empty where it is not known.
  std::string served = {};
  std::string served_because = {};

  // That answered, or else that was asked for, which may be empty.
  const std::string& device() const {
    return report.device().empty() ? call.device : report.device();
  }
};

// Which server was asked. Empty where it did not say.
struct BenchServer {
  std::string address = "";
  std::string host = "";
  std::string version = "";
  std::map<std::string, std::string> device_kinds = {};  // by name
};

struct BenchReport {
  std::string kernel;
  bool tunes = false;  // what is measured decides what runs
  std::map<std::string, client::AttributeValue> attributes = {};
  BenchServer server = {};
  std::vector<BenchPoint> points = {};

  // Not counting points that the server refused without anyone having named a device.
  bool several_devices() const;
};

// "softmax axis=-1".
std::string KernelTitle(const BenchReport& report);
// "8x32 float32".
std::string ProblemTitle(const BenchPoint& point);

// Those that ran and have a rank, fastest first, then those that are unstable, likewise, then
// those that did not run, as they came. Where none is known to be the fastest, those that ran come
// by their medians, stable or not.
std::vector<client::BenchmarkResult> Ranked(const client::BenchmarkReport& report);

// Samples that the call asks of each row: the server's default where it says none.
int64_t SamplesAsked(const client::BenchmarkCall& call);
// Whether a row has fewer samples than were asked for, and not because it was exact enough.
bool IsCut(const client::BenchmarkCall& call, const client::BenchmarkResult& result);
// Whether a row did not run because the call's deadline came before its turn.
bool IsUnreached(const client::BenchmarkResult& result);
// OK when the point was measured: some row ran, and all had their turn. Else why it was not.
absl::Status Outcome(const BenchPoint& point);
// Of all points: OK, or how many were not measured and why the first was not.
absl::Status Outcome(const BenchReport& report);
// Whether its share of the copy ceiling is more than noise explains.
bool IsOverCeiling(const client::BenchmarkResult& result);
// What must be known to read the figures of a result, a sentence each.
std::vector<std::string> Notes(const BenchPoint& point, const client::BenchmarkResult& result);

// The report as text, for people, point by point as they are measured.
class BenchText {
 public:
  // `report` outlives it; its points may change between calls.
  explicit BenchText(const BenchReport* report) : report_(*report) {}

  // What stands above everything.
  std::string Heading() const;
  // A table, after what is new of its device; or a line for a point that has none.
  std::string Point(const BenchPoint& point);

 private:
  const BenchReport& report_;
  std::set<std::string> devices_told_;
};

std::string ToCsv(const BenchReport& report);
nlohmann::json ToJson(const BenchReport& report);

}  // namespace warpcall::cli
