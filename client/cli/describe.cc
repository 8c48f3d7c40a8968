// warpcall describe: what would run for a problem, without running it.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/advice.h"
#include "client/cli/common/candidate.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/common/table.h"
#include "client/cli/push/report.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using client::Description;
using client::SourceFile;
using nlohmann::json;
using Files = google::protobuf::RepeatedPtrField<SourceFile>;

constexpr char kFooter[] =
    R"(SHAPE gives the inputs' shapes:
  16384x16384              one input
  4096x2048x1024           MxNxK for matmul and linear
  64x1024                  MxN for layernorm and rmsnorm, weights of N elements
  8x128x64,64x256          one shape per input
--source prints only files: the implementation's source (cuda, triton, cpp,
expression) or its compiled code (ptx, sass).
A --candidate is a kernel of yours. The server compiles it and checks it on the
problem that --shape gives or, without --shape, on problems that the server
draws. If the candidate does not compile, the exit status is that of
`warpcall push`.)";

struct DescribeOptions {
  explicit DescribeOptions(const Arguments& arguments) : deadline(arguments) {
    arguments.Add("kernel", &problem.kernel, "Name of a kernel from `warpcall kernels`").Required();
    arguments.Add("--shape", &problem.shape, "Set the inputs' shapes, see below").TypeName("SHAPE");
    arguments.Add("--type", &problem.type, "Set the element type; default float32").IsDataType();
    const Option named =
        arguments.Add("--implementation", &implementation,
                      "Describe this implementation (cuda) or variant (cuda:two_pass); default: "
                      "the one that would run");
    candidate.Add(arguments, "Describe this kernel of yours").Excludes(named);
    arguments
        .AddRepeated("--attribute", &attributes,
                     "Set an attribute of the kernel; repeat for several")
        .TypeName("NAME=VALUE");
    arguments.Add(
        "--device", &device,
        "Describe a run on this device from `warpcall devices`; default: server's choice");
    arguments.Add("--source", &source, "Print the source files in this language")
        .OneOf({"cuda", "triton", "cpp", "expression", "ptx", "sass"});
    arguments.SetFooter(kFooter);
  }

  TimeoutOption deadline;
  ProblemText problem;
  std::string implementation;
  CandidateOption candidate;
  std::vector<std::string> attributes;
  std::string device;
  std::string source;
};

struct DescribeReport {
  std::string kernel;
  client::Description description;
  std::vector<std::string> advice;
};

std::string FactTable(const Description& description) {
  const auto& launch = description.launch();
  Table table({"FACT", "VALUE"});
  table.AddRow({"family", description.family()});
  table.AddRow({"chosen because", description.chosen_because()});
  if (!description.grid().empty()) {
    table.AddRow(
        {"grid", absl::StrCat(description.grid(), " blocks of ", description.block(), " threads")});
    table.AddRow({"waves", absl::StrFormat("%.2f", launch.waves())});
    table.AddRow({"occupancy", absl::StrFormat("%.1f%%", 100 * launch.theoretical_occupancy())});
    table.AddRow({"registers", absl::StrCat(description.registers_per_thread(), " a thread")});
    table.AddRow({"shared memory",
                  absl::StrCat(HumanBytes(static_cast<double>(description.shared_memory_bytes())),
                               " a block")});
    table.AddRow({"local memory",
                  absl::StrCat(HumanBytes(static_cast<double>(description.local_memory_bytes())),
                               " a thread")});
  }
  if (launch.gpu_kernels() > 0) table.AddRow({"GPU kernels", absl::StrCat(launch.gpu_kernels())});
  table.AddRow({"workspace", HumanBytes(static_cast<double>(description.workspace_bytes()))});
  table.AddRow({"moves at least", HumanBytes(static_cast<double>(launch.bytes_moved()))});
  table.AddRow({"computes", absl::StrCat(launch.flops(), " FLOP")});
  table.AddRow({"tolerance", description.tolerance()});
  return table.ToString();
}

int64_t LinesOf(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

std::string FileTable(const Files& files) {
  Table table({"FILE", "LANGUAGE", ">LINES"});
  for (const SourceFile& file : files)
    table.AddRow({file.name(), file.language(), absl::StrCat(LinesOf(file.text()))});
  return absl::StrCat("\n", table.ToString(), "print with --source LANGUAGE\n");
}

// Facts, the names of the files, and the advice.
std::string ToText(const DescribeReport& report) {
  const Description& description = report.description;
  const std::string title =
      absl::StrCat(report.kernel, " on ", description.device(), " by ", PinnedName(description));
  std::string text = absl::StrCat(Fitted("", title, 0), "\n", FactTable(description));
  if (!description.files().empty()) absl::StrAppend(&text, FileTable(description.files()));
  if (!report.advice.empty()) absl::StrAppend(&text, "\n");
  for (const std::string& sentence : report.advice) absl::StrAppend(&text, Fitted("", sentence, 0));
  return text;
}

// Everything that DescribeResponse says of a kernel, under its names, with the kernel's name and
// `advice`, a list of sentences.
json ToJson(const DescribeReport& report) {
  json value = cli::ToJson(report.description);
  for (const char* const of_graphs : {"steps", "intermediate_bytes"}) value.erase(of_graphs);
  value["kernel"] = report.kernel;
  value["advice"] = report.advice;
  return value;
}

// The files of `name` in `language`, each after a line with its name when there are several.
// NOT_FOUND says in which languages there are files.
absl::StatusOr<std::string> SourceText(const std::string& name, const Files& files,
                                       const std::string& language) {
  std::vector<const SourceFile*> found;
  std::set<std::string> languages;
  for (const SourceFile& file : files) {
    languages.insert(file.language());
    if (file.language() == language) found.push_back(&file);
  }
  if (found.empty())
    return absl::NotFoundError(
        absl::StrCat(name, " has no files in ", language,
                     "; it has: ", languages.empty() ? "none" : absl::StrJoin(languages, ", ")));
  if (found.size() == 1) return found[0]->text();
  std::string text;
  for (const SourceFile* const file : found)
    absl::StrAppend(&text, text.empty() ? "" : "\n", "==> ", Printable(file->name()), " <==\n",
                    file->text());
  return text;
}

absl::StatusOr<client::DescribeCall> MakeCall(const DescribeOptions& options,
                                              const std::vector<client::KernelInfo>& kernels) {
  client::DescribeCall call{.kernel = options.problem.kernel,
                            .implementation = options.implementation,
                            .device = options.device};
  ASSIGN_OR_RETURN(call.attributes, ParseAttributes(options.attributes, call.kernel, kernels));
  ASSIGN_OR_RETURN(call.inputs, OneProblem(options.problem, call.attributes, kernels));
  return call;
}

absl::StatusOr<DescribeReport> Describe(client::DescribeCall call, TimeLeft* time_left,
                                        client::Client* client) {
  DescribeReport report{.kernel = call.kernel, .description = {}, .advice = {}};
  ASSIGN_OR_RETURN(report.description, time_left->Spend([&](absl::Duration timeout) {
    call.timeout = timeout;
    return client->Describe(call);
  }));
  ASSIGN_OR_RETURN(const std::vector<client::DeviceInfo> devices,
                   client->ListDevices(time_left->left()));
  for (const client::DeviceInfo& device : devices)
    if (device.name == report.description.device())
      report.advice = Advise(report.description, device);
  return report;
}

int PrintSource(const std::string& name, const Files& files, const std::string& language) {
  const absl::StatusOr<std::string> text = SourceText(name, files, language);
  if (!text.ok()) return Refused(text.status());
  PrintText(PrintableLines(*text, {}));  // without colours, which only our own text has
  return kExitOk;
}

// How it was compiled, the names of its files, and the verdict.
int PrintCandidate(const Globals& globals, const DescribeOptions& options,
                   const PushReport& report) {
  Files files;
  std::string text = absl::StrCat(Printable(PushTitle(report)), "\n");
  for (const client::PushEvent& event : report.events) {
    files.MergeFrom(event.compiled().files());
    if (event.has_compiled()) absl::StrAppend(&text, EventText(event));
  }
  const bool compiles = !files.empty();
  const int exit_status = compiles ? kExitOk : ExitStatusOf(*report.verdict());
  if (!options.source.empty() && compiles) return PrintSource(report.file, files, options.source);
  if (globals.json) {
    PrintJson(ToJson(report, exit_status));
    return exit_status;
  }
  if (compiles) absl::StrAppend(&text, FileTable(files));
  PrintText(absl::StrCat(text, EventText(report.events.back())));
  return exit_status;
}

// Whom to ask, and how.
struct Site {
  const Globals& globals;
  const DescribeOptions& options;
  TimeLeft* time_left;
  client::Client* client;
};

int RunCandidate(const Site& site, const PushSource& source,
                 std::vector<client::PushProblem> problems) {
  const Globals& globals = site.globals;
  const DescribeOptions& options = site.options;
  PushReport report{.file = source.path,
                    .name = source.name,
                    .op = options.problem.kernel,
                    .server = globals.server};
  client::PushCall call = CallOf(source);
  call.problems = std::move(problems);
  call.check_only = true;
  call.with_files = true;
  call.device = options.device;
  {
    const Progress progress(absl::StrCat("pushing ", source.path, " to ", globals.server));
    absl::StatusOr<CandidateResult> result = site.time_left->Spend([&](absl::Duration timeout) {
      call.timeout = timeout;
      return PushCandidate(call, nullptr, site.client);
    });
    report.status = result.status();
    if (result.ok()) report.events = std::move(result->events);
  }
  if (!report.status.ok()) return Refused(report.status);
  return PrintCandidate(globals, options, report);
}

int RunDescribe(const Site& site, client::DescribeCall call) {
  const Globals& globals = site.globals;
  const DescribeOptions& options = site.options;
  absl::StatusOr<DescribeReport> report = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("describing ", call.kernel, " on ", globals.server));
    report = Describe(std::move(call), site.time_left, site.client);
  }
  if (!report.ok()) return Refused(report.status());
  if (globals.json) {
    PrintJson(ToJson(*report));
    return kExitOk;
  }
  if (!options.source.empty())
    return PrintSource(PinnedName(report->description), report->description.files(),
                       options.source);
  PrintText(ToText(*report));
  return kExitOk;
}

int Run(const Globals& globals, const DescribeOptions& options) {
  if (globals.json && !options.source.empty())
    return UsageError(absl::InvalidArgumentError("--json and --source both want stdout"));
  const bool has_candidate = options.candidate.given();
  if (options.problem.shape.empty() && !has_candidate)
    return UsageError(absl::InvalidArgumentError("--shape is required"));
  if (options.problem.shape.empty() &&
      !(options.problem.type.empty() && options.attributes.empty()))
    return UsageError(
        absl::InvalidArgumentError("--type and --attribute are of --shape's problem"));
  PushSource source;
  if (has_candidate) {
    auto read = options.candidate.Read(options.problem.kernel);
    if (!read.ok()) return UsageError(read.status());
    source = *std::move(read);
  }
  client::Client client(globals.server, OptionsOf(globals));
  const Choice choice{options.problem.kernel, {options.implementation}};
  TimeLeft time_left(options.deadline.duration());
  const auto kernels = time_left.Spend(
      [&](absl::Duration timeout) { return ListKernelsWith(choice, &client, timeout); });
  if (!kernels.ok()) return Refused(kernels.status());
  const Site site{globals, options, &time_left, &client};
  if (options.problem.shape.empty()) return RunCandidate(site, source, {});
  auto call = MakeCall(options, *kernels);
  if (!call.ok()) return UsageError(call.status());
  if (!has_candidate) return RunDescribe(site, *std::move(call));
  return RunCandidate(site, source, {{.inputs = call->inputs, .attributes = call->attributes}});
}

}  // namespace

Command AddDescribeCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<DescribeOptions>(
      root.AddSubcommand(
          "describe",
          "Show which implementation would run a problem, how and why, without running it"),
      globals, Run);
}

}  // namespace warpcall::cli
