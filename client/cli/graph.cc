// warpcall graph: several kernels in one call, from a JSON file, or what would run of them.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/command.h"
#include "client/cli/common/graph_file.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/table.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

constexpr char kGraphFooter[] =
    R"(--describe runs nothing. The server gets the types and shapes of the inputs, and
no data. FUSED SAVES counts the bytes to and from device memory that go away if
one step of the kernel `fused` computes both this step and the one under WITH.)";

struct GraphArguments {
  explicit GraphArguments(const Arguments& arguments) : timeout(arguments) {
    arguments
        .Add("file", &file,
             "A JSON file: {\"steps\": [{\"name\": \"y\", \"kernel\": \"gelu\", \"inputs\": "
             "[\"x\"]}], "
             "\"outputs\": [\"y\"]}; a step may have an \"implementation\" and \"attributes\", an "
             "output may be {\"name\": \"y\", \"keep\": true, \"ttl\": \"1h\", \"label\": \"h\"}")
        .Required()
        .TypeName("FILE.json");
    arguments
        .AddRepeated("--input", &inputs,
                     "Read an input from a .npy file, x=x.npy or x=- for stdin, or use a tensor on "
                     "the server, w=@HANDLE; repeat for each name that a step reads but that is "
                     "not a step's own name")
        .TypeName("NAME=FILE");
    const Option output =
        arguments
            .AddRepeated("--output", &outputs,
                         "Write an output to a .npy file, y=y.npy or y=- for stdout, or just y.npy "
                         "for a single output; repeat for each output; default: report only")
            .TypeName("NAME=FILE");
    arguments
        .Add("--type", &reading.type,
             "Require this element type of files; bfloat16 reads uint16 files as raw bits")
        .IsDataType();
    arguments
        .Add("--cast", &reading.cast,
             "Convert the elements of files to this type, from float64 and integers too")
        .IsDataType();
    arguments.Add("--device", &device,
                  "Run on this device from `warpcall devices`; default: server's choice");
    arguments.Add("--request_id", &request_id, "Set the request ID, which the server's log shows");
    const Option times =
        arguments.AddFlag("--step-times", &step_times,
                          "Time each step separately, at a cost of a few microseconds per step");
    arguments
        .AddFlag(
            "--describe", &describe,
            "Show which implementations would run and what `fused` would save, without running "
            "them, see below")
        .Excludes(output)
        .Excludes(times);
    arguments.SetFooter(kGraphFooter);
  }

  TimeoutOption timeout;
  std::string file;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  InputReading reading{.can_cast = true};
  std::string device;
  std::string request_id;
  bool step_times = false;
  bool describe = false;
};

// The files of all outputs, in order; empty for those that are not to be written.
absl::StatusOr<std::vector<std::string>> OutputFiles(const GraphArguments& arguments,
                                                     const GraphFile& graph, bool as_json) {
  std::vector<std::string> sent;
  for (const client::GraphOutput& output : graph.outputs)
    if (!output.keep) sent.push_back(output.name);
  ASSIGN_OR_RETURN(const std::vector<std::string> files,
                   FilesByName("output", arguments.outputs, sent));
  std::vector<NamedFile> named;
  for (const std::string& file : files) {
    if (file.empty()) continue;
    RETURN_IF_ERROR(CheckTensorOutput(file, as_json));
    named.push_back({"--output", file});
  }
  RETURN_IF_ERROR(CheckApart(named));
  std::vector<std::string> all;
  size_t next = 0;
  for (const client::GraphOutput& output : graph.outputs)
    all.push_back(output.keep ? "" : files[next++]);
  return all;
}

absl::Status WriteOutputs(const std::vector<std::string>& files,
                          const client::GraphResponse& response) {
  const CleanEnd clean_end;
  for (size_t i = 0; i < files.size(); ++i)
    if (!files[i].empty()) RETURN_IF_ERROR(WriteTensor(files[i], response.outputs[i]));
  return absl::OkStatus();
}

std::string Steps(size_t count) { return absl::StrCat(count, count == 1 ? " step" : " steps"); }

int64_t BytesOf(const client::Tensor& tensor) {
  return client::ByteCount(tensor.data_type(), tensor.shape()).value_or(0);
}

// The kernel of a step that the server reports; empty for one that the graph has not.
std::string KernelOf(const client::GraphRequest& request, const std::string& step) {
  for (const client::GraphStep& each : request.steps)
    if (each.name == step) return each.kernel;
  return "";
}

void PrintGraphJson(const client::GraphRequest& request, const std::vector<std::string>& files,
                    const client::GraphResponse& response) {
  json steps = json::array();
  for (const client::GraphStepResult& step : response.steps)
    steps.push_back({{"name", step.name},
                     {"kernel", KernelOf(request, step.name)},
                     {"implementation", step.implementation},
                     {"kernel_ns", step.kernel_ns},
                     {"launch", cli::ToJson(step.launch)}});
  json outputs = json::array();
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const client::Tensor& output = response.outputs[i];
    json entry = {{"name", request.outputs[i].name},
                  {"data_type", DataTypeName(output.data_type())},
                  {"shape", std::vector<int64_t>(output.shape().begin(), output.shape().end())},
                  {"bytes", BytesOf(output)}};
    if (output.is_resident()) entry["handle"] = output.handle();
    if (!files[i].empty()) entry["file"] = files[i];
    outputs.push_back(std::move(entry));
  }
  PrintJson({{"device", response.device},
             {"request_id", response.request_id},
             {"steps", std::move(steps)},
             {"outputs", std::move(outputs)},
             {"timing", cli::ToJson(response.timing)},
             {"resident_bytes", response.resident_bytes},
             {"intermediate_bytes", response.intermediate_bytes},
             {"replayed", response.replayed},
             {"wall_ns", absl::ToInt64Nanoseconds(response.wall)},
             {"attempts", response.attempts}});
}

Table StepsTable(const client::GraphRequest& request, const client::GraphResponse& response) {
  std::vector<Table::Column> columns = {"STEP", "KERNEL", "IMPLEMENTATION"};
  if (request.step_times) columns.push_back(">TIME");
  Table steps(std::move(columns));
  for (const client::GraphStepResult& step : response.steps) {
    std::vector<std::string> row = {step.name, KernelOf(request, step.name),
                                    PinnedName(step.implementation, step.launch.variant)};
    if (request.step_times) row.push_back(HumanTime(static_cast<double>(step.kernel_ns)));
    steps.AddRow(std::move(row));
  }
  return steps;
}

Table TimesTable(const client::GraphResponse& response) {
  Table times({">QUEUE", ">COPY IN", ">H2D", ">KERNELS", ">D2H", ">SERVER", ">WALL",
               ">INTERMEDIATE", ">RESIDENT", ">REPLAYED"});
  const client::Timing& timing = response.timing;
  std::vector<std::string> row;
  for (const int64_t ns : {timing.queue_ns, timing.copy_in_ns, timing.h2d_ns, timing.kernel_ns,
                           timing.d2h_ns, timing.total_ns, absl::ToInt64Nanoseconds(response.wall)})
    row.push_back(HumanTime(static_cast<double>(ns)));
  row.push_back(HumanBytes(static_cast<double>(response.intermediate_bytes)));
  row.push_back(HumanBytes(static_cast<double>(response.resident_bytes)));
  row.push_back(response.replayed ? "yes" : "no");
  times.AddRow(std::move(row));
  return times;
}

void PrintGraphTables(const client::GraphRequest& request, const std::vector<std::string>& files,
                      const client::GraphResponse& response) {
  PrintText(Fitted("",
                   absl::StrCat(Steps(response.steps.size()), " on ", response.device, ", request ",
                                response.request_id),
                   0));
  const bool keeps = std::any_of(request.outputs.begin(), request.outputs.end(),
                                 [](const client::GraphOutput& output) { return output.keep; });
  // Handles are to be copied: figures are never broken into lines, as text is.
  Table outputs({"OUTPUT", keeps ? ">FILE OR HANDLE" : "FILE", "TYPE", "SHAPE", ">BYTES"});
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const client::Tensor& output = response.outputs[i];
    const std::string place = output.is_resident() ? HandleText(output.handle())
                              : files[i].empty()   ? "(not written)"
                                                   : files[i];
    outputs.AddRow({request.outputs[i].name, place, DataTypeName(output.data_type()),
                    absl::StrJoin(output.shape(), "x"),
                    HumanBytes(static_cast<double>(BytesOf(output)))});
  }
  PrintText(absl::StrCat("\n", StepsTable(request, response).ToString(), "\n", outputs.ToString(),
                         "\n", TimesTable(response).ToString()));
}

// For --verbose.
void PrintRequest(const Globals& globals, const client::GraphRequest& request) {
  PrintNote(absl::StrCat("asking ", globals.server, " for ", request.steps.size(), " steps",
                         request.device.empty() ? "" : absl::StrCat(" on ", request.device)));
  for (const client::GraphInput& input : request.inputs)
    PrintNote(absl::StrCat("  input ", input.name, ": ",
                           input.tensor.is_resident()
                               ? HandleText(input.tensor.handle())
                               : absl::StrCat(DataTypeName(input.tensor.data_type()), " ",
                                              absl::StrJoin(input.tensor.shape(), "x"))));
}

void PrintDescriptionJson(const client::Description& description) {
  json steps = json::array();
  for (const client::DescribedStep& step : description.steps()) steps.push_back(cli::ToJson(step));
  PrintJson({{"device", description.device()},
             {"steps", std::move(steps)},
             {"launch", cli::ToJson(description.launch())},
             {"workspace_bytes", description.workspace_bytes()},
             {"intermediate_bytes", description.intermediate_bytes()}});
}

void PrintDescription(const client::Description& description) {
  Table table(
      {"STEP", "KERNEL", "IMPLEMENTATION", ">RESULT", "INTERMEDIATE", ">FUSED SAVES", "WITH"});
  for (const client::DescribedStep& step : description.steps()) {
    const bool fuses = !step.fuses_with().empty();
    table.AddRow({step.name(), step.kernel(),
                  PinnedName(step.implementation(), step.launch().variant()),
                  HumanBytes(static_cast<double>(step.result_bytes())),
                  step.is_intermediate() ? "yes" : "no",
                  fuses ? HumanBytes(static_cast<double>(step.fused_saves_bytes())) : "-",
                  fuses ? step.fuses_with() : "-"});
  }
  const std::string title = absl::StrCat(Steps(static_cast<size_t>(description.steps_size())),
                                         " on ", description.device(), ", not run");
  const std::string intermediates = absl::StrCat(
      "intermediates take ", HumanBytes(static_cast<double>(description.intermediate_bytes())),
      " of device memory");
  PrintText(absl::StrCat(Fitted("", title, 0), "\n", table.ToString(), "\n",
                         Fitted("", intermediates, 0)));
}

int DescribeGraph(const Globals& globals, const client::GraphRequest& request,
                  client::Client* client) {
  absl::StatusOr<client::Description> description = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("describing a graph on ", globals.server));
    description = client->DescribeGraph(request);
  }
  if (!description.ok()) return Refused(description.status());
  if (globals.json)
    PrintDescriptionJson(*description);
  else
    PrintDescription(*description);
  return kExitOk;
}

int RunGraph(const Globals& globals, const GraphArguments& arguments) {
  auto graph = ReadGraphFile(arguments.file);
  if (!graph.ok()) return UsageError(graph.status());
  const auto files = OutputFiles(arguments, *graph, globals.json);
  if (!files.ok()) return UsageError(files.status());
  auto inputs = ReadGraphInputs(*graph, arguments.inputs, arguments.reading);
  if (!inputs.ok()) return UsageError(inputs.status());
  const client::GraphRequest request{.inputs = *std::move(inputs),
                                     .steps = std::move(graph->steps),
                                     .outputs = std::move(graph->outputs),
                                     .device = arguments.device,
                                     .request_id = arguments.request_id,
                                     .timeout = arguments.timeout.duration(),
                                     .step_times = arguments.step_times};
  client::Client client(globals.server, OptionsOf(globals));
  if (globals.verbose) PrintRequest(globals, request);
  if (arguments.describe) return DescribeGraph(globals, request, &client);
  absl::StatusOr<client::GraphResponse> response = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat(arguments.file, " on ", globals.server));
    response = client.ExecuteGraph(request);
  }
  if (!response.ok()) return Refused(response.status());
  const bool to_stdout = std::any_of(files->begin(), files->end(), NamesStdout);
  if (const absl::Status status = WriteOutputs(*files, *response); !status.ok())
    return to_stdout ? Refused(status) : UsageError(status);
  if (globals.json) {
    PrintGraphJson(request, *files, *response);
  } else if (!to_stdout) {
    PrintGraphTables(request, *files, *response);
  }
  return kExitOk;
}

}  // namespace

Command AddGraphCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<GraphArguments>(
      root.AddSubcommand("graph",
                         "Run several kernels in one call; intermediate results stay on the "
                         "device"),
      globals, RunGraph);
}

}  // namespace warpcall::cli
