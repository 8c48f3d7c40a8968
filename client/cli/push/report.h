// Reports of `warpcall push`, for people and for programs.
//
// JSON: times are in nanoseconds, rates per second, shares 0 to 1, types as "float32". Errors,
// and elements of outputs, that are no finite numbers are the texts "nan", "inf" and "-inf".
//
//   file, name, op     of the push; name and op are null where the manifest cannot be read here
//   client_version, server {address}
//   events             all events in order. Each has "event" ("queued", "compiled", "checked",
//                      "timed", "verdict", or "unknown" of a newer server) and all fields of its
//                      message (PushQueued, ...) by their names; registers_per_thread,
//                      shared_memory_bytes, local_memory_bytes and theoretical_occupancy are null
//                      where no GPU has loaded the code. Besides,
//     problem            {inputs: [{data_type, shape}], attributes: {name: value}}
//     first              null where there is no wrong element
//     stamp              null where the server sent none
//   error              null, or {code, message}: the call ended before the verdict
//   status             the verdict's, "PASSED"; null before the verdict
//   exit_status        of the command
//   verdict            all fields of PushVerdict; null before the verdict. speedup is null if no
//                      other implementation was timed beside the push, deterministic before all
//                      launches were compared
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/common/table.h"
#include "warpcall/client.h"

namespace warpcall::cli {

struct PushReport {
  std::string file = {};
  std::string name = {};  // as in PushSource; likewise op
  std::string op = {};
  std::string server = {};  // address
  std::vector<client::PushEvent> events = {};
  absl::Status status = absl::CancelledError("not pushed");  // of the call

  // Null: the call ended before it.
  const client::PushVerdict* verdict() const;
};

// Exit statuses beside those of every command.
inline constexpr int kExitNotPassed = 3;      // judged, and something is wrong
inline constexpr int kExitNotSupported = 4;   // this server cannot judge it
inline constexpr int kExitInternalError = 5;  // the server failed to judge it: push it again

// Exit status of a verdict.
int ExitStatusOf(const client::PushVerdict& verdict);

// "float32"; "type7" for a type that only newer servers have.
std::string DataTypeText(int type);
// "softmax.cu: my_softmax, op softmax".
std::string PushTitle(const PushReport& report);
// "4096x1024 float32 axis=0".
std::string ProblemTitle(const client::PushEvent& event);
// "[0, 17]: got NaN, expected 0, allowed 1e-07 off"; empty if no element is wrong.
std::string WrongElement(const client::PushEvent& checked);
// The facts of a PushCompiled: "32 registers, no spills, ..."; empty if no GPU has loaded it.
std::string LaunchFacts(const client::PushEvent& compiled);
// The verdict and what follows from it, in one line.
std::string VerdictLine(const client::PushVerdict& verdict);
// Device, driver and server of a verdict; empty where the server did not say.
std::string StampLine(const client::PushVerdict& verdict);

// The times of a PushTimed, the push first.
struct TimesTable {
  struct Row {
    std::vector<std::string> cells;  // one of each column, or only the first
    std::string note;                // why an implementation has no times
  };
  std::string title;
  std::vector<Table::Column> columns;
  std::vector<Row> rows;
  std::vector<std::string> notes;  // sentences
};
TimesTable TimesOf(const client::PushEvent& timed);

// Returns the lines that show an event to people, with their newlines; none for events that say
// nothing.
std::string EventText(const client::PushEvent& event);

nlohmann::json ToJson(const PushReport& report, int exit_status);

}  // namespace warpcall::cli
