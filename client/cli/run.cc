// warpcall run: one kernel on tensors from .npy files. warpcall fused: the same for an expression.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/command.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/table.h"
#include "client/cpp/client.h"
#include "client/cpp/npy.h"
#include "kernels/common/status_macros.h"

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
               "Of x0, x1 and so on, the inputs in order, as 'gelu(x0 + x1)'; in parentheses if it "
               "begins with a minus")
          .Required();
      arguments.Add("--seed", &seed, "Of the elements that dropout keeps").ShowDefault();
    } else {
      arguments.Add("kernel", &kernel, "A name from `warpcall kernels`").Required();
      arguments.AddRepeated("--attribute", &attributes, "name=value, once per attribute")
          .TypeName("NAME=VALUE");
    }
    AddCommon(arguments);
  }

  TimeoutOption timeout;
  std::string kernel;
  std::string expression;
  int64_t seed = 0;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> attributes;
  std::string type;
  client::CallOptions call;
  int connections = kConnectionsMin;
  bool stream = false;

 private:
  static constexpr int kConnectionsMin = 1;
  static constexpr int kConnectionsMax = 64;

  void AddCommon(const Arguments& arguments) {
    arguments.AddRepeated("--input", &inputs, "A .npy file; once per input, in order")
        .Required()
        .TypeName("FILE");
    arguments.AddRepeated("--output", &outputs, "Where to write the result; none: only report")
        .TypeName("FILE");
    arguments.Add("--implementation", &call.implementation,
                  "An implementation or a family; none: the server chooses");
    arguments.Add("--device", &call.device,
                  "A name from `warpcall devices`; none: the server chooses");
    arguments
        .Add("--type", &type,
             "The element type that the inputs must have; bf16 takes uint16 files for bfloat16")
        .IsDataType();
    arguments.Add("--request_id", &call.request_id, "Stands in the server's log");
    const Option over =
        arguments
            .Add("--connections", &connections,
                 "Send a large call in stripes over this many connections, where the "
                 "kernel's problems have independent parts")
            .Between(kConnectionsMin, kConnectionsMax)
            .ShowDefault();
    arguments
        .AddFlag("--stream", &stream,
                 "Send the tensors in chunks, for those that are over the server's limit on "
                 "messages")
        .Excludes(over);
  }
};

absl::Status WriteOutputs(const RunOptions& options, const client::Result& result) {
  if (options.outputs.empty()) return absl::OkStatus();
  if (options.outputs.size() != result.outputs.size())
    return absl::InvalidArgumentError(absl::StrCat(options.outputs.size(), " --output for ",
                                                   result.outputs.size(), " outputs of ",
                                                   options.kernel));
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const Progress progress(absl::StrCat("writing ", options.outputs[i]));
    RETURN_IF_ERROR(client::WriteNpy(options.outputs[i], result.outputs[i]));
  }
  return absl::OkStatus();
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
                  {"bytes", output.data().size()}};
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
       {"kernel_bytes_per_second", PerSecond(result.launch.bytes_moved, result.timing.kernel_ns)},
       {"kernel_flops_per_second", PerSecond(result.launch.flops, result.timing.kernel_ns)},
       {"wall_ns", absl::ToInt64Nanoseconds(result.wall)},
       {"attempts", result.attempts},
       {"stripes", result.stripes}});
}

void PrintResultTables(const RunOptions& options, const client::Result& result) {
  constexpr auto kRight = Table::Align::kRight;
  std::printf("%s on %s by %s, request %s\n", options.kernel.c_str(), result.device.c_str(),
              result.implementation.c_str(), result.request_id.c_str());
  Table outputs({{"OUTPUT"}, {"TYPE"}, {"SHAPE"}, {"BYTES", kRight}});
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const client::Tensor& output = result.outputs[i];
    outputs.AddRow({i < options.outputs.size() ? options.outputs[i] : "(not written)",
                    DataTypeName(output.data_type()), absl::StrJoin(output.shape(), "x"),
                    HumanBytes(static_cast<double>(output.data().size()))});
  }
  Table times({{"QUEUE", kRight},
               {"COPY IN", kRight},
               {"H2D", kRight},
               {"KERNEL", kRight},
               {"D2H", kRight},
               {"SERVER", kRight},
               {"WALL", kRight},
               {"KERNEL B/s", kRight},
               {"KERNEL FLOP/s", kRight},
               {"STRIPES", kRight}});
  const client::Timing& timing = result.timing;
  std::vector<std::string> row;
  for (const int64_t ns : {timing.queue_ns, timing.copy_in_ns, timing.h2d_ns, timing.kernel_ns,
                           timing.d2h_ns, timing.total_ns, absl::ToInt64Nanoseconds(result.wall)})
    row.push_back(HumanTime(static_cast<double>(ns)));
  row.push_back(HumanRate(PerSecond(result.launch.bytes_moved, timing.kernel_ns), "B/s"));
  row.push_back(HumanRate(PerSecond(result.launch.flops, timing.kernel_ns), "FLOP/s"));
  row.push_back(absl::StrCat(result.stripes));
  times.AddRow(std::move(row));
  std::printf("\n%s\n%s", outputs.ToString().c_str(), times.ToString().c_str());
}

int Run(const Globals& globals, const RunOptions& options) {
  client::Call call{.kernel = options.kernel, .options = options.call};
  call.options.timeout = options.timeout.duration();
  auto inputs = ReadInputs(options.inputs, options.type);
  if (!inputs.ok()) return UsageError(inputs.status());
  call.inputs = *std::move(inputs);

  if (!options.expression.empty())
    call.attributes = {{"expression", options.expression}, {"seed", options.seed}};
  client::Client client(globals.server, {.connections = options.connections});
  if (!options.attributes.empty()) {
    const auto kernels = client.ListKernels(call.options.timeout);
    if (!kernels.ok()) return Refused(kernels.status());
    auto attributes = ParseAttributes(options.attributes, options.kernel, *kernels);
    if (!attributes.ok()) return UsageError(attributes.status());
    call.attributes = *std::move(attributes);
  }
  absl::StatusOr<client::Result> result = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat(options.kernel, " on ", globals.server));
    result = options.stream ? client.ExecuteStream(call) : client.Execute(call);
  }
  if (!result.ok()) return Refused(result.status());
  if (const absl::Status status = WriteOutputs(options, *result); !status.ok())
    return UsageError(status);
  if (globals.json) {
    PrintResultJson(options, *result);
  } else {
    PrintResultTables(options, *result);
  }
  return kExitOk;
}

}  // namespace

Command AddRunCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand("run", "Run a kernel on tensors from .npy files");
  const auto options = std::make_shared<RunOptions>(arguments, What::kKernel);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

Command AddFusedCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand(
      "fused", "Compute an expression on tensors from .npy files, in one pass over them");
  const auto options = std::make_shared<RunOptions>(arguments, What::kExpression);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

}  // namespace warpcall::cli
