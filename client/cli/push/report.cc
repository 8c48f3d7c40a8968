#include "client/cli/push/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/common/benchmark_cells.h"
#include "client/cli/common/command.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"

namespace warpcall::cli {
namespace {

using client::BenchmarkResult;
using client::PushEvent;
using client::PushVerdict;
using nlohmann::json;

constexpr char kPassed[] = "PASSED";
constexpr char kRightMark[] = "✓";
constexpr char kWrongMark[] = "✗";
// Indent of the lines that belong to the one above.
constexpr size_t kLineIndent = 2;

json AttributeJson(const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kBoolValue:
      return attribute.bool_value();
    case v1::Attribute::kIntValue:
      return attribute.int_value();
    case v1::Attribute::kDoubleValue:
      return attribute.double_value();
    case v1::Attribute::kStringValue:
      return attribute.string_value();
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return {};
}

// Returns true if a GPU has loaded the code: every kernel has registers.
bool IsLoaded(const v1::PushCompiled& compiled) { return compiled.registers_per_thread() > 0; }

const v1::PushProblem& ProblemOf(const PushEvent& event) {
  return event.has_timed() ? event.timed().problem() : event.checked().problem();
}

// A value of a tensor.
std::string ValueText(double value) {
  if (std::isnan(value)) return "NaN";
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : ExactNumber(value);
}

// "0.21": an error in units of its bound.
std::string BoundText(double error) {
  if (std::isnan(error)) return "NaN";
  return std::isfinite(error) ? absl::StrFormat("%.2g", error) : ExactNumber(error);
}

std::string QueuedText(const v1::PushQueued& queued) {
  if (queued.before() <= 0) return "";
  return absl::StrCat("queued behind ", queued.before(), queued.before() == 1 ? " call" : " calls",
                      "\n");
}

std::string CompiledText(const PushEvent& event) {
  const v1::PushCompiled& compiled = event.compiled();
  const std::string what = absl::StrCat(
      compiled.kernel().empty() ? "does not compile: " : "compiled ",
      DataTypeText(compiled.data_type()), compiled.arch().empty() ? "" : " for ", compiled.arch(),
      compiled.cached()
          ? " earlier"
          : absl::StrCat(" in ", HumanTime(static_cast<double>(compiled.compile_ns()))));
  const std::string facts = LaunchFacts(event);
  std::string text = Fitted("", absl::StrCat(what, facts.empty() ? "" : ": ", facts), kLineIndent);
  const absl::string_view log = absl::StripSuffix(compiled.log(), "\n");
  if (log.empty()) return text;
  // The log is the compiler's and the author's: line by line, so that no code of it stays.
  for (const absl::string_view line : absl::StrSplit(log, '\n'))
    absl::StrAppend(&text, std::string(kLineIndent, ' '), Printable(line), "\n");
  return text;
}

std::string CheckedText(const PushEvent& event) {
  const v1::PushChecked& checked = event.checked();
  const std::string fill = checked.fill().empty() ? "" : absl::StrCat(", ", checked.fill());
  std::string text =
      Fitted(absl::StrCat(checked.passed() ? kRightMark : kWrongMark, " "),
             absl::StrCat(ProblemTitle(event), fill, ": error ", BoundText(checked.max_error()),
                          " of its bound, ", checked.checked_elements(), " elements"),
             2 * kLineIndent);
  for (const std::string& more :
       {checked.has_first() ? absl::StrCat("first wrong element ", WrongElement(event)) : "",
        checked.detail()})
    if (!more.empty())
      absl::StrAppend(&text, Fitted(std::string(kLineIndent, ' '), more, 2 * kLineIndent));
  return text;
}

std::string TimedText(const PushEvent& event) {
  const TimesTable times = TimesOf(event);
  Table table(times.columns);
  for (const TimesTable::Row& row : times.rows) {
    if (row.note.empty()) {
      table.AddRow(row.cells);
    } else {
      table.AddNote(row.cells, row.note);
    }
  }
  std::string text =
      absl::StrCat("\n", Fitted("", times.title, kLineIndent), table.ToString(OutScreen()));
  for (const std::string& note : times.notes) absl::StrAppend(&text, Fitted("", note, kLineIndent));
  return text;
}

std::string VerdictText(const PushVerdict& verdict) {
  const std::string stamp = StampLine(verdict);
  return absl::StrCat("\n", stamp.empty() ? "" : Fitted("", stamp, kLineIndent),
                      Printable(VerdictLine(verdict)), "\n");
}

std::vector<std::string> Cells(const v1::PushTimed& timed, const BenchmarkResult& result) {
  const double push_ns = timed.results(0).error().empty() ? timed.results(0).median_ns() : 0;
  std::vector<std::string> cells = {NameCell(result),
                                    HumanTime(result.median_ns()),
                                    HumanTime(result.min_ns()),
                                    NoiseCell(result),
                                    RateCell(result.bytes_per_second()),
                                    ShareCell(result.fraction_of_ceiling()),
                                    RateCell(result.flops_per_second())};
  if (timed.flops_ceiling() > 0)
    cells.push_back(ShareCell(result.flops_per_second() / timed.flops_ceiling()));
  cells.push_back(push_ns > 0 ? absl::StrFormat("%.2f", result.median_ns() / push_ns) : "-");
  return cells;
}

// Writes a figure as a number, or as a string if JSON cannot represent it (NaN, infinity).
void WriteFigure(const char* name, double value, json* object) {
  (*object)[name] = std::isfinite(value) ? json(value) : json(ExactNumber(value));
}

json ProblemJson(const v1::PushProblem& problem) {
  json inputs = json::array();
  for (const v1::TensorSpec& input : problem.inputs())
    inputs.push_back({{"data_type", DataTypeText(input.data_type())},
                      {"shape", std::vector<int64_t>(input.shape().begin(), input.shape().end())}});
  json attributes = json::object();
  for (const auto& [name, value] : problem.attributes()) attributes[name] = AttributeJson(value);
  return {{"inputs", std::move(inputs)}, {"attributes", std::move(attributes)}};
}

json CheckedJson(const v1::PushChecked& checked) {
  json value = cli::ToJson(checked);
  value["problem"] = ProblemJson(checked.problem());
  WriteFigure("max_error", checked.max_error(), &value);
  WriteFigure("max_absolute_error", checked.max_absolute_error(), &value);
  WriteFigure("max_relative_error", checked.max_relative_error(), &value);
  if (!checked.has_first()) {
    value["first"] = nullptr;
    return value;
  }
  WriteFigure("got", checked.first().got(), &value["first"]);
  WriteFigure("expected", checked.first().expected(), &value["first"]);
  WriteFigure("bound", checked.first().bound(), &value["first"]);
  return value;
}

json CompiledJson(const v1::PushCompiled& compiled) {
  json value = cli::ToJson(compiled);
  value["data_type"] = DataTypeText(compiled.data_type());
  if (IsLoaded(compiled)) return value;
  for (const char* const figure : {"registers_per_thread", "shared_memory_bytes",
                                   "local_memory_bytes", "theoretical_occupancy"})
    value[figure] = nullptr;
  return value;
}

json VerdictJson(const PushVerdict& verdict) {
  json value = cli::ToJson(verdict);
  if (!verdict.has_stamp()) value["stamp"] = nullptr;
  if (verdict.speedup() == 0) value["speedup"] = nullptr;
  // Other verdicts come before all launches have been compared.
  const bool compared = verdict.status() == kPassed || verdict.status() == "NONDETERMINISTIC";
  if (!compared) value["deterministic"] = nullptr;
  return value;
}

json EventJson(const PushEvent& event) {
  const auto named = [](const char* name, json value) {
    value["event"] = name;
    return value;
  };
  switch (event.event_case()) {
    case PushEvent::kQueued:
      return named("queued", cli::ToJson(event.queued()));
    case PushEvent::kCompiled:
      return named("compiled", CompiledJson(event.compiled()));
    case PushEvent::kChecked:
      return named("checked", CheckedJson(event.checked()));
    case PushEvent::kTimed: {
      json value = cli::ToJson(event.timed());
      value["problem"] = ProblemJson(event.timed().problem());
      return named("timed", std::move(value));
    }
    case PushEvent::kVerdict:
      return named("verdict", VerdictJson(event.verdict()));
    case PushEvent::EVENT_NOT_SET:
      break;
  }
  return named("unknown", json::object());
}

// True for verdicts that other inputs may change, so that the seed helps.
bool DependsOnInputs(const std::string& status) {
  constexpr const char* kOthers[] = {kPassed, "INVALID_MANIFEST", "COMPILE_ERROR", "NOT_SUPPORTED",
                                     "INTERNAL_ERROR"};
  return std::find(std::begin(kOthers), std::end(kOthers), status) == std::end(kOthers);
}

}  // namespace

const PushVerdict* PushReport::verdict() const {
  return events.empty() || !events.back().has_verdict() ? nullptr : &events.back().verdict();
}

std::string DataTypeText(int type) {
  return type >= 1 && type <= kDataTypeCount ? DataTypeName(static_cast<DataType>(type))
                                             : absl::StrCat("type", type);
}

int ExitStatusOf(const PushVerdict& verdict) {
  if (verdict.status() == kPassed) return kExitOk;
  if (verdict.status() == "NOT_SUPPORTED") return kExitNotSupported;
  return verdict.status() == "INTERNAL_ERROR" ? kExitInternalError : kExitNotPassed;
}

std::string PushTitle(const PushReport& report) {
  return absl::StrCat(report.file, report.name.empty() ? "" : ": ", report.name,
                      report.op.empty() ? "" : ", op ", report.op);
}

std::string ProblemTitle(const PushEvent& event) {
  const v1::PushProblem& problem = ProblemOf(event);
  std::string title =
      absl::StrJoin(problem.inputs(), ",", [](std::string* out, const v1::TensorSpec& input) {
        absl::StrAppend(out, absl::StrJoin(input.shape(), "x"));
      });
  if (problem.inputs_size() > 0)
    absl::StrAppend(&title, " ", DataTypeText(problem.inputs(0).data_type()));
  // In order of their names, which the message does not keep.
  const json attributes = ProblemJson(problem)["attributes"];
  for (const auto& [name, value] : attributes.items())
    absl::StrAppend(&title, " ", name, "=",
                    value.is_string() ? value.get<std::string>() : value.dump());
  return title;
}

std::string WrongElement(const PushEvent& event) {
  if (!event.checked().has_first()) return "";
  const v1::PushMismatch& first = event.checked().first();
  return absl::StrFormat("[%s]: got %s, expected %s, allowed %.2g off",
                         absl::StrJoin(first.index(), ", "), ValueText(first.got()),
                         ValueText(first.expected()), first.bound());
}

std::string LaunchFacts(const PushEvent& event) {
  const v1::PushCompiled& compiled = event.compiled();
  if (!IsLoaded(compiled)) return "";
  const auto bytes = [](int64_t count) { return HumanBytes(static_cast<double>(count)); };
  return absl::StrCat(compiled.registers_per_thread(), " registers, ",
                      compiled.local_memory_bytes() == 0
                          ? "no spills"
                          : absl::StrCat(bytes(compiled.local_memory_bytes()), " a thread spilled"),
                      ", ", bytes(compiled.shared_memory_bytes()),
                      " shared memory a block, occupancy ",
                      ShareCell(compiled.theoretical_occupancy()));
}

std::string VerdictLine(const PushVerdict& verdict) {
  std::string line = verdict.status();
  if (verdict.finite_only() && verdict.status() == kPassed)
    absl::StrAppend(&line, " for finite inputs");
  std::vector<std::string> facts;
  if (!verdict.reason().empty()) facts.push_back(verdict.reason());
  if (verdict.speedup() > 0)
    facts.push_back(
        absl::StrFormat("%.2fx the speed of the best other implementation", verdict.speedup()));
  if (verdict.status() == kPassed && !verdict.deterministic())
    facts.push_back("results differ from run to run");
  if (verdict.cached()) facts.push_back("judged earlier; --fresh judges it anew");
  if (verdict.seed() != 0 && DependsOnInputs(verdict.status()))
    facts.push_back(absl::StrCat("--seed ", verdict.seed(), " repeats it"));
  return absl::StrCat(line, facts.empty() ? "" : ": ", absl::StrJoin(facts, "; "));
}

std::string StampLine(const PushVerdict& verdict) {
  const client::RunStamp& stamp = verdict.stamp();
  std::vector<std::string> facts;
  if (!stamp.device_description().empty()) facts.push_back(stamp.device_description());
  if (!stamp.driver().empty()) facts.push_back(absl::StrCat("driver ", stamp.driver()));
  if (!stamp.cuda().empty()) facts.push_back(absl::StrCat("CUDA ", stamp.cuda()));
  if (!stamp.server_version().empty())
    facts.push_back(absl::StrCat("warpcalld ", stamp.server_version()));
  if (!stamp.throttle_reasons().empty())
    facts.push_back(absl::StrCat("slowed down by ", absl::StrJoin(stamp.throttle_reasons(), ", ")));
  return absl::StrJoin(facts, ", ");
}

TimesTable TimesOf(const PushEvent& event) {
  const v1::PushTimed& timed = event.timed();
  TimesTable table{
      .title = ProblemTitle(event),
      .columns = {"IMPLEMENTATION", ">MEDIAN", ">MIN", ">NOISE", ">B/s", ">%COPY", ">FLOP/s"},
      .rows = {},
      .notes = {}};
  absl::StrAppend(
      &table.title,
      timed.ceiling_bytes_per_second() > 0
          ? absl::StrCat(": %COPY of ", HumanRate(timed.ceiling_bytes_per_second(), "B/s"))
          : ": no copy ceiling was measured");
  if (timed.flops_ceiling() > 0) {
    table.columns.push_back(">%MADD");
    absl::StrAppend(&table.title, ", %MADD of ", HumanRate(timed.flops_ceiling(), "FLOP/s"));
  }
  table.columns.push_back(">VS PUSH");
  if (timed.floor_ns() > 0) absl::StrAppend(&table.title, ", floor ", HumanTime(timed.floor_ns()));
  for (const BenchmarkResult& result : timed.results()) {
    if (result.error().empty()) {
      table.rows.push_back({Cells(timed, result), ""});
    } else {
      table.rows.push_back({{NameCell(result)}, absl::StrCat("did not run: ", result.error())});
    }
  }
  if (timed.unstable())
    table.notes.push_back("unstable: other work disturbed these times; they are not ranked");
  if (!timed.cold()) table.notes.push_back("operands may have been in the L2 cache");
  return table;
}

std::string EventText(const PushEvent& event) {
  switch (event.event_case()) {
    case PushEvent::kQueued:
      return QueuedText(event.queued());
    case PushEvent::kCompiled:
      return CompiledText(event);
    case PushEvent::kChecked:
      return CheckedText(event);
    case PushEvent::kTimed:
      return TimedText(event);
    case PushEvent::kVerdict:
      return VerdictText(event.verdict());
    case PushEvent::EVENT_NOT_SET:
      break;
  }
  return "";
}

json ToJson(const PushReport& report, int exit_status) {
  json events = json::array();
  for (const PushEvent& event : report.events) events.push_back(EventJson(event));
  const PushVerdict* const verdict = report.verdict();
  json value = {{"file", report.file},
                {"name", OrNull(report.name)},
                {"op", OrNull(report.op)},
                {"client_version", ClientVersion()},
                {"server", {{"address", report.server}}},
                {"events", std::move(events)},
                {"error", nullptr},
                {"status", verdict == nullptr ? json() : json(verdict->status())},
                {"exit_status", exit_status},
                {"verdict", verdict == nullptr ? json() : VerdictJson(*verdict)}};
  if (!report.status.ok()) value["error"] = cli::ToJson(report.status);
  return value;
}

}  // namespace warpcall::cli
