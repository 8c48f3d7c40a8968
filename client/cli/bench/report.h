// Reports of `warpcall bench`, for people and for programs.
//
// JSON: times are in nanoseconds, rates per second, shares 0 to 1, types as "float32".
//
//   kernel, attributes, iterations, warmup_iterations, seed, max_noise, timeout_ns,
//   method
//                         as asked for; null: the server's default
//   client_version
//   server    {address, host, version}; null where the server did not say
//   points    one for each device, type and shape; for `warpcall tune` also "auto", what runs from
//             then on: {implementation, chosen_because}; null where the server did not say:
//     shape, data_type      as on the command line, without braces
//     inputs                {data_type, shape} of each
//     device                that ran it, or that was asked for where nothing did
//     device_kind           "cpu" or "cuda"; null where it is not known
//     error                 null, or {code, message}: the server refused the point, or the call
//                           ended before all rows were measured; `results` has those that were
//     ceiling_bytes_per_second, flops_ceiling, read_ceiling_bytes_per_second, stamp (RunStamp),
//     and results           all fields of BenchmarkResponse; null where missing or unknown; each
//                           result also has
//       notes               the notes needed to read its figures, in sentences
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
#include "warpcall/client.h"

namespace warpcall::cli {

struct BenchPoint {
  std::string shape = "";  // as text
  DataType data_type = DataType::kFloat32;
  client::BenchmarkCall call = {};
  bool asked = false;  // true once the server was asked; false if interrupted before
  // Status of the call; `report` keeps the results that came before the call ended.
  absl::Status status = absl::CancelledError("not measured");
  client::BenchmarkReport report = {};
  // Implementation that a tuned problem runs from now on, and the reason. Empty where unknown.
  std::string served = {};
  std::string served_because = {};

  // The device that answered, or the one that was asked for, which may be empty.
  const std::string& device() const {
    return report.device().empty() ? call.device : report.device();
  }
};

// Identity of the server. Empty where the server did not report it.
struct BenchServer {
  std::string address = "";
  std::string host = "";
  std::string version = "";
  std::map<std::string, std::string> device_kinds = {};  // by name
};

struct BenchReport {
  std::string kernel;
  bool tunes = false;  // true for `warpcall tune`: results decide what runs
  std::map<std::string, client::AttributeValue> attributes = {};
  BenchServer server = {};
  std::vector<BenchPoint> points = {};

  // Does not count points that the server refused when no device was named.
  bool several_devices() const;
};

// "softmax axis=-1".
std::string KernelTitle(const BenchReport& report);
// "8x32 float32".
std::string ProblemTitle(const BenchPoint& point);

// Sorts rows: ranked ones first, by speed; then unstable ones, by speed; then those that did not
// run, in their order. If no row is known to be the fastest, the rows that ran are sorted by
// median, stable or not.
std::vector<client::BenchmarkResult> Ranked(const client::BenchmarkReport& report);

// Samples that the call asks of each row: the server's default where it says none.
int64_t SamplesAsked(const client::BenchmarkCall& call);
// True if a row has fewer samples than requested although it was not yet exact enough.
bool IsCut(const client::BenchmarkCall& call, const client::BenchmarkResult& result);
// True if a row did not run because the call's deadline came before its turn.
bool IsUnreached(const client::BenchmarkResult& result);
// Returns OK if the point was measured: some row ran, and all had their turn. Else the reason.
absl::Status Outcome(const BenchPoint& point);
// Outcome of all points: OK, or the number not measured and the reason of the first.
absl::Status Outcome(const BenchReport& report);
// True if the rows' fraction_of_ceiling is of reads; else it is of copies.
bool IsOfReads(const client::BenchmarkReport& report);
// True if the row's share of its memory ceiling is larger than noise explains.
bool IsOverCeiling(const client::BenchmarkResult& result);
// Returns the notes needed to read the figures of a result, a sentence each.
std::vector<std::string> Notes(const BenchPoint& point, const client::BenchmarkResult& result);

// The report as text, for people, point by point as they are measured.
class BenchText {
 public:
  // `report` outlives it; its points may change between calls.
  explicit BenchText(const BenchReport* report) : report_(*report) {}

  // Returns the lines above everything else.
  std::string Heading() const;
  // Returns a table between the facts about its device and the explanations of its marks that no
  // earlier one had; or a line for a point without results.
  std::string Point(const BenchPoint& point);

 private:
  const BenchReport& report_;
  std::set<std::string> told_;  // lines that stand above once
};

std::string ToCsv(const BenchReport& report);
nlohmann::json ToJson(const BenchReport& report);

}  // namespace warpcall::cli
