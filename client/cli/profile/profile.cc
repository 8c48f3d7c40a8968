// warpcall profile: what the device does for one call of a kernel, or of a graph of kernels.
#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/candidate.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/graph_file.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/common/table.h"
#include "client/cli/profile/figures.h"
#include "client/cli/profile/report.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

constexpr uint64_t kSeedDefault = 1;

constexpr char kFooter[] =
    R"(Inputs are files (--input) or random N(0, 1) values that the server makes (--shape):
  16384x16384              one input
  4096x2048x1024           MxNxK for matmul and linear
  64x1024                  MxN for layernorm and rmsnorm, weights of N elements
  8x128x64,64x256          one shape per input
A graph (--graph) takes each input by its name, as NAME=FILE or NAME=@HANDLE, and
runs as with `warpcall graph`; its outputs are discarded. STEP is the graph's step.
The report opens with the kernel's bound and the reason. It is "Inconclusive" if
other work took more than a quarter of the threads' time.
AS A COPY is the time that a copy of LEAST BYTES takes. LEAST BYTES counts each
input and output once. PASSES is the memory traffic divided by LEAST BYTES:
measured, or an upper bound.
The next table lists the device's kernels, copies, memory sets and gaps (idle
time), the longest first. SHARE is a row's share of the time from the device's
first activity to its last.
With two implementations, or two graphs, the report compares both and explains the
slower one.
A --candidate is a kernel of yours, timed as `warpcall push` does: alone on random
inputs that the server makes. With --implementation the report compares the two.)";

// Number of implementations, or graphs, that fit side by side.
constexpr size_t kComparedMax = 2;

struct ProfileOptions {
  explicit ProfileOptions(const Arguments& arguments) : deadline(arguments) {
    arguments.Add("kernel", &kernel,
                  "Name of a kernel from `warpcall kernels`, required without --graph");
    const Option input =
        arguments
            .AddRepeated("--input", &inputs,
                         "Read an input from a .npy file; repeat for each input, in order; with "
                         "--graph, as NAME=FILE or NAME=@HANDLE")
            .TypeName("FILE");
    const Option graph =
        arguments
            .AddRepeated("--graph", &graphs,
                         "Profile the graph in this file, which `warpcall help graph` describes, "
                         "instead of a kernel; repeat to compare two")
            .TypeName("FILE.json");
    arguments
        .Add("--shape", &shape, "Use random inputs of these shapes instead of files, see below")
        .Excludes(input)
        .Excludes(graph)
        .TypeName("SHAPE");
    arguments
        .Add("--type", &type,
             "Set the element type of random inputs, default float32, or require it of files; "
             "bfloat16 reads uint16 files as raw bits")
        .IsDataType();
    profile.seed = kSeedDefault;
    arguments.Add("--seed", &profile.seed, "Seed the random inputs").ShowDefault().Excludes(graph);
    arguments
        .AddFlag("--request", &profile.request_path,
                 "Profile the whole path of a request with random inputs, as with files: copies "
                 "and chunks included; default: the kernel alone, inputs already on the device")
        .Excludes(graph);
    arguments
        .AddRepeated("--implementation", &implementations,
                     "Profile this implementation (cuda) or variant (cuda:two_pass); repeat "
                     "to compare two; default: server's choice")
        .Excludes(graph);
    candidate.Add(arguments, "Profile this kernel of yours, if the server finds it correct")
        .Excludes(input)
        .Excludes(graph);
    arguments
        .AddRepeated("--attribute", &attributes,
                     "Set an attribute of the kernel; repeat for several")
        .Excludes(graph)
        .TypeName("NAME=VALUE");
    arguments.Add("--device", &profile.call.options.device,
                  "Profile on this device from `warpcall devices`; default: server's choice");
    arguments
        .Add("--iterations", &profile.iterations,
             "Number of times to run the call; default: the server's, 3")
        .Between(1, kProfileIterationsMax);
    arguments.Add("--trace", &trace, "Write a trace for ui.perfetto.dev").TypeName("FILE.json");
    arguments.Add("--csv", &csv, "Write a line per row; - is stdout, without the table")
        .TypeName("FILE");
    arguments.SetFooter(kFooter);
  }

  TimeoutOption deadline;
  std::string kernel;
  std::vector<std::string> inputs;
  std::vector<std::string> graphs;
  std::string shape;
  std::string type;
  std::vector<std::string> implementations;
  CandidateOption candidate;
  std::vector<std::string> attributes;
  std::string trace;
  std::string csv;
  client::ProfileCall profile;  // all but what depends on the kernel
};

absl::StatusOr<client::ProfileCall> MakeCall(const ProfileOptions& options,
                                             const std::vector<client::KernelInfo>& kernels) {
  client::ProfileCall profile = options.profile;
  client::Call& call = profile.call;
  call.kernel = options.kernel;
  profile.trace = !options.trace.empty();
  ASSIGN_OR_RETURN(call.attributes, ParseAttributes(options.attributes, options.kernel, kernels));
  if (options.shape.empty()) {
    ASSIGN_OR_RETURN(call.inputs, ReadInputs(options.inputs, options.type));
  } else {
    ASSIGN_OR_RETURN(profile.input_specs, OneProblem({options.kernel, options.shape, options.type},
                                                     call.attributes, kernels));
  }
  return profile;
}

// The values of --input whose names the graph has.
std::vector<std::string> InputsOf(const GraphFile& graph, const std::vector<std::string>& texts) {
  std::vector<std::string> own;
  std::copy_if(texts.begin(), texts.end(), std::back_inserter(own), [&](const std::string& text) {
    const std::string name = text.substr(0, text.find('='));
    return std::find(graph.inputs.begin(), graph.inputs.end(), name) != graph.inputs.end();
  });
  return own;
}

// Two graphs share the inputs whose names both have.
absl::StatusOr<std::vector<client::ProfileGraphCall>> MakeGraphCalls(
    const ProfileOptions& options) {
  std::vector<GraphFile> graphs;
  for (const std::string& path : options.graphs) {
    ASSIGN_OR_RETURN(graphs.emplace_back(), ReadGraphFile(path));
  }
  const bool shares = graphs.size() > 1;
  for (const std::string& text : options.inputs)
    if (shares && std::all_of(graphs.begin(), graphs.end(), [&](const GraphFile& graph) {
          return InputsOf(graph, {text}).empty();
        }))
      return absl::InvalidArgumentError(
          absl::StrCat("--input ", text, ": neither graph has an input of this name"));
  std::vector<client::ProfileGraphCall> calls;
  for (GraphFile& graph : graphs) {
    ASSIGN_OR_RETURN(
        auto inputs,
        ReadGraphInputs(graph, shares ? InputsOf(graph, options.inputs) : options.inputs,
                        {.type = options.type}));
    calls.push_back({.graph = {.inputs = std::move(inputs),
                               .steps = std::move(graph.steps),
                               .outputs = std::move(graph.outputs),
                               .device = options.profile.call.options.device},
                     .iterations = options.profile.iterations,
                     .trace = !options.trace.empty()});
  }
  return calls;
}

// The shapes and types of what is profiled.
std::vector<client::TensorSpec> SpecsOf(const client::ProfileCall& profile) {
  if (!profile.input_specs.empty()) return profile.input_specs;
  std::vector<client::TensorSpec> specs;
  for (const client::Tensor& input : profile.call.inputs)
    specs.push_back({input.data_type(), {input.shape().begin(), input.shape().end()}});
  return specs;
}

// The server to call, and the time left for all of its answers together.
struct Server {
  client::Client* client;
  TimeLeft* time_left;
};

// Measures the copy bandwidth with a tiny benchmark, which includes a copy; 0 if it does not.
double MeasureCopy(const std::string& device, absl::Duration timeout, client::Client* client) {
  const auto report = client->Benchmark({.kernel = "identity",
                                         .inputs = {{DataType::kFloat32, {1}}},
                                         .device = device,
                                         .warmup_iterations = 1,
                                         .iterations = 1,
                                         .timeout = timeout});
  return report.ok() ? report->ceiling_bytes_per_second() : 0;
}

using DescribeWithin =
    absl::FunctionRef<absl::StatusOr<client::Description>(absl::Duration timeout)>;

// Asks the server for the plan, by `describe`, and for the device behind the profile. An older
// server may not answer: the figures then lack these values, and give the reason.
void AddPlanAndDevice(DescribeWithin describe, const Server& server, Profiled* profiled) {
  absl::StatusOr<client::Description> plan = server.time_left->Spend(describe);
  if (plan.ok())
    profiled->plan = *std::move(plan);
  else
    profiled->plan_missing = absl::StrCat("Describe: ", plan.status().message());
  const auto devices = server.time_left->Spend(
      [&](absl::Duration timeout) { return server.client->ListDevices(timeout); });
  if (!devices.ok()) return;
  for (const client::DeviceInfo& device : *devices)
    if (device.name == profiled->report.device()) profiled->device = device;
  // The server measures a copy once a device has been idle for a while. Its value may be missing,
  // or measured while the machine was busy.
  double& bandwidth = profiled->device.measured_bandwidth_bytes_per_second;
  if (profiled->device.name.empty() ||
      (bandwidth > 0 && FiguresOf(*profiled).fraction_of_ceiling <= kAboveMemory))
    return;
  bandwidth = std::max(bandwidth, server.time_left->Spend([&](absl::Duration timeout) {
    return MeasureCopy(profiled->device.name, timeout, server.client);
  }));
}

absl::StatusOr<Profiled> ProfileOne(client::ProfileCall call, const Server& server) {
  Profiled profiled{.kernel = call.call.kernel, .iterations_asked = call.iterations};
  ASSIGN_OR_RETURN(profiled.report, server.time_left->Spend([&](absl::Duration timeout) {
    call.call.options.timeout = timeout;
    return server.client->Profile(call);
  }));
  client::DescribeCall describe{.kernel = call.call.kernel,
                                .implementation = NameOf(profiled),
                                .inputs = SpecsOf(call),
                                .attributes = call.call.attributes,
                                .device = profiled.report.device()};
  const auto describe_within = [&](absl::Duration timeout) {
    describe.timeout = timeout;
    return server.client->Describe(describe);
  };
  AddPlanAndDevice(describe_within, server, &profiled);
  return profiled;
}

absl::StatusOr<Profiled> ProfileGraph(const std::string& file, client::ProfileGraphCall call,
                                      const Server& server) {
  Profiled profiled{.kernel = file, .is_graph = true, .iterations_asked = call.iterations};
  ASSIGN_OR_RETURN(profiled.report, server.time_left->Spend([&](absl::Duration timeout) {
    call.graph.timeout = timeout;
    return server.client->ProfileGraph(call);
  }));
  call.graph.device = profiled.report.device();
  const auto describe_within = [&](absl::Duration timeout) {
    call.graph.timeout = timeout;
    return server.client->DescribeGraph(call.graph);
  };
  AddPlanAndDevice(describe_within, server, &profiled);
  return profiled;
}

absl::StatusOr<std::vector<Profiled>> ProfileGraphs(const ProfileOptions& options,
                                                    std::vector<client::ProfileGraphCall> calls,
                                                    const Server& server) {
  std::vector<Profiled> profiled;
  for (size_t i = 0; i < calls.size(); ++i) {
    // The second graph uses the device that the server chose for the first.
    if (i > 0) calls[i].graph.device = profiled[0].report.device();
    ASSIGN_OR_RETURN(profiled.emplace_back(),
                     ProfileGraph(options.graphs[i], std::move(calls[i]), server));
  }
  return profiled;
}

// Returns a push's figures as a profile of one run.
Profiled ProfileOf(const CandidateResult& result, const client::BenchmarkResult& times) {
  Profiled profiled{.kernel = {}, .iterations_asked = 0};
  client::ProfileReport& report = profiled.report;
  report.set_implementation(times.implementation());
  report.set_iterations(1);
  report.set_counters_unavailable("the server times a pushed kernel and does not count");
  client::ProfileRow& row = *report.add_rows();
  row.set_kind(kKernelRow);
  row.set_calls(times.launch().gpu_kernels());
  row.set_total_ns(static_cast<int64_t>(times.median_ns()));
  row.set_mean_ns(times.median_ns());
  row.set_fraction(1);
  row.set_achieved_occupancy(-1);
  row.set_sm_throughput(-1);
  row.set_dram_throughput(-1);
  client::Description& plan = profiled.plan;
  *plan.mutable_launch() = times.launch();
  const int type = result.timed().problem().inputs(0).data_type();
  for (const client::PushEvent& event : result.events) {
    const v1::PushCompiled& compiled = event.compiled();
    if (compiled.data_type() != type) continue;
    row.set_name(compiled.kernel());
    row.set_registers_per_thread(compiled.registers_per_thread());
    row.set_shared_memory_bytes(compiled.shared_memory_bytes());
    plan.set_registers_per_thread(compiled.registers_per_thread());
    plan.set_local_memory_bytes(compiled.local_memory_bytes());
  }
  return profiled;
}

// FAILED_PRECONDITION with the verdict if the kernel is not right.
absl::StatusOr<Profiled> ProfileCandidate(const PushSource& source, const client::ProfileCall& call,
                                          const Server& server) {
  client::PushCall push = CallOf(source);
  push.problems = {{.inputs = call.input_specs, .attributes = call.call.attributes}};
  push.iterations = call.iterations;
  push.compare_with = {"none"};
  push.device = call.call.options.device;
  CandidateResult result;
  ASSIGN_OR_RETURN(result, server.time_left->Spend([&](absl::Duration timeout) {
    push.timeout = timeout;
    return PushCandidate(push, nullptr, server.client);
  }));
  if (!result.passed()) return absl::FailedPreconditionError(result.WhyNot());
  const v1::PushTimed& timed = result.timed();
  if (timed.results_size() == 0 || !timed.results(0).error().empty())
    return absl::FailedPreconditionError(absl::StrCat(
        source.path, " is right and was not timed",
        timed.results_size() == 0 ? "" : absl::StrCat(": ", timed.results(0).error())));
  Profiled profiled = ProfileOf(result, timed.results(0));
  profiled.kernel = call.call.kernel;
  const auto devices = server.time_left->Spend(
      [&](absl::Duration timeout) { return server.client->ListDevices(timeout); });
  // A push does not say on which of several equal devices it ran.
  const std::string& description = result.verdict().stamp().device_description();
  if (devices.ok())
    for (const client::DeviceInfo& device : *devices)
      if (push.device.empty() ? device.description == description : device.name == push.device)
        profiled.device = device;
  profiled.report.set_device(push.device.empty() ? description : push.device);
  profiled.device.measured_bandwidth_bytes_per_second = timed.ceiling_bytes_per_second();
  return profiled;
}

absl::StatusOr<std::vector<Profiled>> ProfileAll(const ProfileOptions& options,
                                                 const std::optional<PushSource>& candidate,
                                                 client::ProfileCall call, const Server& server) {
  std::vector<std::string> implementations = options.implementations;
  std::vector<Profiled> profiled;
  if (candidate.has_value()) {
    ASSIGN_OR_RETURN(profiled.emplace_back(), ProfileCandidate(*candidate, call, server));
    call.call.options.device = profiled[0].device.name;
  } else if (implementations.empty()) {
    implementations.emplace_back();
  }
  for (const std::string& implementation : implementations) {
    call.call.options.implementation = implementation;
    ASSIGN_OR_RETURN(Profiled one, ProfileOne(call, server));
    // With two implementations, the second uses the device that the server chose for the first.
    call.call.options.device = one.report.device();
    profiled.push_back(std::move(one));
  }
  return profiled;
}

absl::Status WriteTrace(const ProfileOptions& options, const client::ProfileReport& report) {
  RETURN_IF_ERROR(WriteOutput(options.trace, report.trace_json()));
  // With --json, stdout holds nothing but the JSON value.
  PrintNote(absl::StrCat("trace of ", HumanBytes(static_cast<double>(report.trace_json().size())),
                         " in ", options.trace, ": open it at https://ui.perfetto.dev"));
  return absl::OkStatus();
}

bool CsvIsFile(const ProfileOptions& options) {
  return !options.csv.empty() && !NamesStdout(options.csv);
}

absl::Status CheckFiles(const ProfileOptions& options) {
  if (CsvIsFile(options)) {
    RETURN_IF_ERROR(CheckApart({{"--csv", options.csv}, {"--trace", options.trace}}));
    RETURN_IF_ERROR(CheckOutput(options.csv));
  }
  return CheckOutput(options.trace);
}

absl::Status Print(const Globals& globals, const ProfileOptions& options,
                   const std::vector<Profiled>& profiled) {
  if (globals.json) {
    PrintJson(ToJson(profiled));
  } else if (NamesStdout(options.csv)) {
    PrintData(ToCsv(profiled));
  } else {
    PrintText(ToText(profiled));
  }
  if (!CsvIsFile(options)) return absl::OkStatus();
  return WriteOutput(options.csv, ToCsv(profiled));
}

absl::Status CheckGraphUsage(const ProfileOptions& options) {
  if (!options.kernel.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("the kernels of --graph are in its file; leave out '", options.kernel, "'"));
  if (options.graphs.size() > kComparedMax)
    return absl::InvalidArgumentError(absl::StrCat("--graph is given ", options.graphs.size(),
                                                   " times; ", kComparedMax, " can be compared"));
  if (options.graphs.size() > 1 && !options.trace.empty())
    return absl::InvalidArgumentError("--trace takes one graph; two are named");
  return absl::OkStatus();
}

absl::Status CheckUsage(const Globals& globals, const ProfileOptions& options) {
  if (globals.json && NamesStdout(options.csv))
    return absl::InvalidArgumentError("--json and --csv - both want stdout");
  if (!options.graphs.empty()) return CheckGraphUsage(options);
  if (options.kernel.empty()) return absl::InvalidArgumentError("kernel or --graph is required");
  if (options.inputs.empty() == options.shape.empty())
    return absl::InvalidArgumentError("--input or --shape is required");
  const size_t compared = options.implementations.size() + (options.candidate.given() ? 1 : 0);
  if (compared > kComparedMax)
    return absl::InvalidArgumentError(
        absl::StrCat("--implementation is given ", options.implementations.size(), " times",
                     options.candidate.given() ? " and --candidate once; " : "; ", kComparedMax,
                     " can be compared"));
  if (options.candidate.given() && options.profile.request_path)
    return absl::InvalidArgumentError("--request is the path of Execute, which runs no candidate");
  if (options.candidate.given() && !options.trace.empty())
    return absl::InvalidArgumentError("--trace cannot be used with --candidate");
  if (options.implementations.size() > 1 && !options.trace.empty())
    return absl::InvalidArgumentError("--trace takes one implementation; two are named");
  return absl::OkStatus();
}

// Prints and writes what came of it.
int Report(const Globals& globals, const ProfileOptions& options,
           const absl::StatusOr<std::vector<Profiled>>& profiled) {
  if (!profiled.ok()) return Refused(profiled.status());
  if (const absl::Status status = Print(globals, options, *profiled); !status.ok())
    return UsageError(status);
  if (options.trace.empty()) return kExitOk;
  const client::ProfileReport& report = profiled->front().report;
  if (report.trace_json().empty())
    return Refused(absl::InternalError("the server sent no trace, though one was asked for"));
  if (const absl::Status status = WriteTrace(options, report); !status.ok())
    return UsageError(status);
  return kExitOk;
}

int RunGraphs(const Globals& globals, const ProfileOptions& options) {
  auto calls = MakeGraphCalls(options);
  if (!calls.ok()) return UsageError(calls.status());
  if (const absl::Status status = CheckFiles(options); !status.ok()) return UsageError(status);
  client::Client client(globals.server, OptionsOf(globals));
  TimeLeft time_left(options.deadline.duration());
  absl::StatusOr<std::vector<Profiled>> profiled = absl::UnknownError("not called");
  {
    const Progress progress(
        absl::StrCat("profiling ", absl::StrJoin(options.graphs, " and "), " on ", globals.server));
    profiled = ProfileGraphs(options, *std::move(calls), {&client, &time_left});
  }
  return Report(globals, options, profiled);
}

int Run(const Globals& globals, const ProfileOptions& options) {
  if (const absl::Status status = CheckUsage(globals, options); !status.ok())
    return UsageError(status);
  if (!options.graphs.empty()) return RunGraphs(globals, options);
  std::optional<PushSource> candidate;
  if (options.candidate.given()) {
    auto source = options.candidate.Read(options.kernel);
    if (!source.ok()) return UsageError(source.status());
    candidate = *std::move(source);
  }
  client::Client client(globals.server, OptionsOf(globals));
  TimeLeft time_left(options.deadline.duration());
  const auto kernels = time_left.Spend([&](absl::Duration timeout) {
    return ListKernelsWith({options.kernel, options.implementations}, &client, timeout);
  });
  if (!kernels.ok()) return Refused(kernels.status());
  const auto call = MakeCall(options, *kernels);
  if (!call.ok()) return UsageError(call.status());
  if (const absl::Status status = CheckFiles(options); !status.ok()) return UsageError(status);

  absl::StatusOr<std::vector<Profiled>> profiled = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("profiling ", options.kernel, " on ", globals.server));
    profiled = ProfileAll(options, candidate, *call, {&client, &time_left});
  }
  return Report(globals, options, profiled);
}

}  // namespace

Command AddProfileCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<ProfileOptions>(
      root.AddSubcommand("profile", "Show how a device spends its time on a kernel"), globals, Run);
}

}  // namespace warpcall::cli
