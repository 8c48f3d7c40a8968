// warpcall run: one kernel on tensors from .npy files, or on random ones. warpcall fused: the same
// for an expression.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/common/table.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

enum class What : uint8_t { kKernel, kExpression };

struct RunOptions {
  RunOptions(const Arguments& arguments, What what) : timeout(arguments) {
    if (what == What::kExpression) {
      kernel = "fused";
      arguments
          .Add("expression", &expression,
               "Formula over the inputs x0, x1 and so on, in order, as 'gelu(x0 + x1)'; put it in "
               "parentheses if it begins with a minus")
          .Required();
      arguments.Add("--seed", &dropout_seed, "Seed dropout and the random inputs").ShowDefault();
    } else {
      arguments.Add("kernel", &kernel, "Name of a kernel from `warpcall kernels`").Required();
      arguments
          .AddRepeated("--attribute", &attributes,
                       "Set an attribute of the kernel; repeat for several")
          .TypeName("NAME=VALUE");
      arguments.Add("--seed", &seed, "Seed the random inputs").ShowDefault();
    }
    AddTensors(arguments);
    AddCall(arguments);
  }

  uint64_t InputSeed() const {
    return expression.empty() ? seed : static_cast<uint64_t>(dropout_seed);
  }

  TimeoutOption timeout;
  std::string kernel;
  std::string expression;
  uint64_t seed = 1;
  int64_t dropout_seed = 0;
  std::vector<std::string> files;  // without --input before them
  std::vector<std::string> inputs;
  std::string shape;
  std::vector<std::string> outputs;
  std::vector<std::string> attributes;
  InputReading reading{.can_cast = true};
  TtlOption ttl;
  client::CallOptions call;
  int connections = kConnectionsMin;
  bool stream = false;

 private:
  static constexpr int kConnectionsMin = 1;
  static constexpr int kConnectionsMax = 64;

  void AddTensors(const Arguments& arguments) {
    const Option input =
        arguments
            .AddRepeated(
                "--input", &inputs,
                "Read an input from a .npy file, - for stdin, or use a tensor on the server, "
                "@HANDLE; repeat for each input, in order")
            .TypeName("FILE");
    arguments.AddRepeated("inputs", &files, "Input files in order, instead of --input")
        .TakesAll()
        .Excludes(input)
        .TypeName("FILE");
    const Option random =
        arguments
            .Add("--shape", &shape,
                 "Use random N(0, 1) inputs of this shape instead of files, as 64x1024; MxNxK for "
                 "matmul and linear, or one shape per input, comma-separated")
            .Excludes(input)
            .TypeName("SHAPE");
    const Option output =
        arguments
            .AddRepeated("--output", &outputs,
                         "Write an output to this .npy file, - for stdout; repeat for each output; "
                         "default: report only")
            .TypeName("FILE");
    const Option keep = arguments
                            .AddFlag("--keep", &call.keep_outputs,
                                     "Leave the outputs on the device and print their handles")
                            .Excludes(output);
    ttl.Add(arguments, "Keep the outputs for this long after their last use").Needs(keep);
    arguments
        .Add("--type", &reading.type,
             "Set the element type of random inputs, default float32, or require it of files; "
             "bfloat16 reads uint16 files as raw bits")
        .IsDataType();
    arguments
        .Add("--cast", &reading.cast,
             "Convert the elements of files to this type, from float64 and integers too")
        .IsDataType()
        .Excludes(random);
  }

  void AddCall(const Arguments& arguments) {
    arguments.Add(
        "--implementation", &call.implementation,
        "Run this implementation (cuda) or variant (cuda:two_pass); default: server's choice");
    arguments.Add("--device", &call.device,
                  "Run on this device from `warpcall devices`; default: server's choice");
    arguments.Add("--request_id", &call.request_id,
                  "Set the request ID, which the server's log shows");
    const Option over = arguments
                            .Add("--connections", &connections,
                                 "Split a large call over this many connections, if its problem "
                                 "has independent parts")
                            .Between(kConnectionsMin, kConnectionsMax)
                            .ShowDefault();
    arguments
        .AddFlag("--stream", &stream,
                 "Send the tensors in chunks, so that they may exceed the server's message limit")
        .Excludes(over);
  }
};

bool WritesToStdout(const RunOptions& options) {
  return std::any_of(options.outputs.begin(), options.outputs.end(), NamesStdout);
}

// Checks the options as far as that is possible without the server.
absl::Status CheckOptions(const Globals& globals, const RunOptions& options) {
  const bool has_files = !options.inputs.empty() || !options.files.empty();
  if (!has_files && options.shape.empty())
    return absl::InvalidArgumentError(
        "inputs are required: files (--input FILE, or just FILE) or random ones (--shape SHAPE)");
  if (has_files && !options.shape.empty())
    return absl::InvalidArgumentError("inputs come from files or from --shape, not from both");
  RETURN_IF_ERROR(options.ttl.duration().status());
  for (auto output = options.outputs.begin(); output != options.outputs.end(); ++output) {
    if (std::find(options.outputs.begin(), output, *output) != output)
      return absl::InvalidArgumentError(absl::StrCat("--output ", *output, " is given twice"));
    RETURN_IF_ERROR(CheckTensorOutput(*output, globals.json));
  }
  return absl::OkStatus();
}

absl::Status WriteOutputs(const RunOptions& options, const client::Result& result) {
  if (options.outputs.empty()) return absl::OkStatus();
  if (options.outputs.size() != result.outputs.size())
    return absl::InvalidArgumentError(absl::StrCat(options.outputs.size(), " --output for ",
                                                   result.outputs.size(), " outputs of ",
                                                   options.kernel));
  const CleanEnd clean_end;
  for (size_t i = 0; i < result.outputs.size(); ++i)
    RETURN_IF_ERROR(WriteTensor(options.outputs[i], result.outputs[i]));
  return absl::OkStatus();
}

// Returns the bytes of a tensor, here or on the server.
int64_t BytesOf(const client::Tensor& tensor) {
  return client::ByteCount(tensor.data_type(), tensor.shape()).value_or(0);
}

// Work per second of the kernel alone; 0 when it took no measurable time.
double PerSecond(int64_t work, int64_t nanoseconds) {
  return nanoseconds > 0 ? static_cast<double>(work) * 1e9 / static_cast<double>(nanoseconds) : 0;
}

void PrintResultJson(const RunOptions& options, const client::Result& result) {
  json outputs = json::array();
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const client::Tensor& output = result.outputs[i];
    json entry = {{"data_type", DataTypeName(output.data_type())},
                  {"shape", std::vector<int64_t>(output.shape().begin(), output.shape().end())},
                  {"bytes", BytesOf(output)}};
    if (output.is_resident()) entry["handle"] = output.handle();
    if (i < options.outputs.size()) entry["file"] = options.outputs[i];
    outputs.push_back(std::move(entry));
  }
  PrintJson(
      {{"kernel", options.kernel},
       {"implementation", result.implementation},
       {"device", result.device},
       {"request_id", result.request_id},
       {"outputs", std::move(outputs)},
       {"timing", ToJson(result.timing)},
       {"launch", ToJson(result.launch)},
       {"resident_bytes", result.resident_bytes},
       {"kernel_bytes_per_second", PerSecond(result.launch.bytes_moved, result.timing.kernel_ns)},
       {"kernel_flops_per_second", PerSecond(result.launch.flops, result.timing.kernel_ns)},
       {"wall_ns", absl::ToInt64Nanoseconds(result.wall)},
       {"attempts", result.attempts},
       {"stripes", result.stripes}});
}

void PrintResultTables(const RunOptions& options, const client::Result& result) {
  PrintText(Fitted("",
                   absl::StrCat(options.kernel, " on ", result.device, " by ",
                                PinnedName(result.implementation, result.launch.variant),
                                ", request ", result.request_id),
                   0));
  // Handles are to be copied: figures are never broken into lines, as text is.
  Table outputs({options.call.keep_outputs ? ">OUTPUT" : "OUTPUT", "TYPE", "SHAPE", ">BYTES"});
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const client::Tensor& output = result.outputs[i];
    const std::string place = output.is_resident()         ? HandleText(output.handle())
                              : i < options.outputs.size() ? options.outputs[i]
                                                           : "(not written)";
    outputs.AddRow({place, DataTypeName(output.data_type()), absl::StrJoin(output.shape(), "x"),
                    HumanBytes(static_cast<double>(BytesOf(output)))});
  }
  Table times({">QUEUE", ">COPY IN", ">H2D", ">KERNEL", ">D2H", ">SERVER", ">WALL", ">KERNEL B/s",
               ">KERNEL FLOP/s", ">STRIPES"});
  const client::Timing& timing = result.timing;
  std::vector<std::string> row;
  for (const int64_t ns : {timing.queue_ns, timing.copy_in_ns, timing.h2d_ns, timing.kernel_ns,
                           timing.d2h_ns, timing.total_ns, absl::ToInt64Nanoseconds(result.wall)})
    row.push_back(HumanTime(static_cast<double>(ns)));
  row.push_back(HumanRate(PerSecond(result.launch.bytes_moved, timing.kernel_ns), "B/s"));
  row.push_back(HumanRate(PerSecond(result.launch.flops, timing.kernel_ns), "FLOP/s"));
  row.push_back(absl::StrCat(result.stripes));
  times.AddRow(std::move(row));
  PrintText(absl::StrCat("\n", outputs.ToString(), "\n", times.ToString()));
}

// For --verbose.
void PrintCall(const Globals& globals, const client::Call& call) {
  const absl::Duration within = absl::Ceil(call.options.timeout, absl::Milliseconds(1));
  PrintNote(
      absl::StrCat("asking ", globals.server, " for ", call.kernel, ", implementation ",
                   call.options.implementation.empty() ? "auto" : call.options.implementation,
                   call.options.device.empty() ? "" : absl::StrCat(" on ", call.options.device),
                   ", within ", absl::FormatDuration(within)));
  for (const client::Tensor& input : call.inputs)
    PrintNote(input.is_resident()
                  ? absl::StrCat("  input ", HandleText(input.handle()))
                  : absl::StrCat("  input ", DataTypeName(input.data_type()), " ",
                                 absl::StrJoin(input.shape(), "x"), ", ",
                                 HumanBytes(static_cast<double>(input.data().size()))));
  for (const auto& [name, value] : call.attributes)
    PrintNote(absl::StrCat("  attribute ", name, "=", AttributeText(value)));
}

// Making what no request can carry would take minutes.
absl::Status CheckFits(const std::vector<client::TensorSpec>& specs) {
  int64_t sum = 0;
  for (const client::TensorSpec& spec : specs) {
    ASSIGN_OR_RETURN(const int64_t bytes, client::ByteCount(spec.data_type, spec.shape));
    if (bytes > client::kMessageBytesMax - sum)
      return absl::InvalidArgumentError(absl::StrCat(
          "the inputs have ", sum, " + ", bytes, " bytes or more; a gRPC message has at most ",
          client::kMessageBytesMax, "; --stream takes tensors of any size"));
    sum += bytes;
  }
  return absl::OkStatus();
}

// Fills in what depends on the server's lists: attribute types and shapes of random inputs.
absl::Status FillIn(const RunOptions& options, const std::vector<client::KernelInfo>& kernels,
                    client::Call* call) {
  if (!options.attributes.empty()) {
    ASSIGN_OR_RETURN(call->attributes,
                     ParseAttributes(options.attributes, options.kernel, kernels));
  }
  if (options.shape.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const std::vector<client::TensorSpec> specs,
      OneProblem({options.kernel, options.shape, options.reading.type}, call->attributes, kernels));
  if (!options.stream) RETURN_IF_ERROR(CheckFits(specs));
  ASSIGN_OR_RETURN(call->inputs, RandomInputs(specs, options.InputSeed()));
  return absl::OkStatus();
}

// A refusal for its size says what takes any.
absl::Status WithAdvice(const absl::Status& refusal, const RunOptions& options) {
  const absl::string_view message = refusal.message();
  const bool too_large = absl::StrContains(message, "max_message_mib") ||
                         absl::StrContains(message, "a gRPC message has at most") ||
                         absl::StrContains(message, "message larger than max");
  if (options.stream || !too_large) return refusal;
  return absl::Status(refusal.code(),
                      absl::StrCat(message, "; --stream takes tensors of any size"));
}

absl::StatusOr<client::Result> Execute(const Globals& globals, const RunOptions& options,
                                       const client::Call& call, client::Client* client) {
  if (globals.verbose) PrintCall(globals, call);
  absl::StatusOr<client::Result> result = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat(options.kernel, " on ", globals.server));
    result = options.stream ? client->ExecuteStream(call) : client->Execute(call);
  }
  if (result.ok()) return result;
  const Choice choice{options.kernel, {options.call.implementation}};
  return WithAdvice(Explained(result.status(), choice, client), options);
}

int Run(const Globals& globals, const RunOptions& options) {
  if (const absl::Status status = CheckOptions(globals, options); !status.ok())
    return UsageError(status);
  client::Call call{.kernel = options.kernel, .options = options.call};
  call.options.keep_ttl = *options.ttl.duration();
  auto inputs =
      ReadInputs(options.inputs.empty() ? options.files : options.inputs, options.reading);
  if (!inputs.ok()) return UsageError(inputs.status());
  call.inputs = *std::move(inputs);
  if (!options.expression.empty())
    call.attributes = {{"expression", options.expression}, {"seed", options.dropout_seed}};

  client::ClientOptions client_options = OptionsOf(globals);
  client_options.connections = options.connections;
  client::Client client(globals.server, std::move(client_options));
  TimeLeft time_left(options.timeout.duration());
  if (!options.attributes.empty() || !options.shape.empty()) {
    const Choice choice{options.kernel, {options.call.implementation}};
    const auto kernels = time_left.Spend(
        [&](absl::Duration timeout) { return ListKernelsWith(choice, &client, timeout); });
    if (!kernels.ok()) return Refused(kernels.status());
    if (const absl::Status status = FillIn(options, *kernels, &call); !status.ok())
      return UsageError(status);
  }
  call.options.timeout = time_left.left();
  const auto result = Execute(globals, options, call, &client);
  if (!result.ok()) return Refused(result.status());
  if (const absl::Status status = WriteOutputs(options, *result); !status.ok())
    return WritesToStdout(options) ? Refused(status) : UsageError(status);
  if (globals.json) {
    PrintResultJson(options, *result);
  } else if (!WritesToStdout(options)) {
    PrintResultTables(options, *result);
  }
  return kExitOk;
}

}  // namespace

Command AddRunCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments =
      root.AddSubcommand("run", "Run a kernel on tensors from .npy files or on random tensors");
  const auto options = std::make_shared<RunOptions>(arguments, What::kKernel);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

Command AddFusedCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments =
      root.AddSubcommand("fused", "Compute an expression over tensors in one pass");
  const auto options = std::make_shared<RunOptions>(arguments, What::kExpression);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

}  // namespace warpcall::cli
