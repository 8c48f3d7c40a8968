// warpcall describe: what would run for a problem, without running it.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/common/advice.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/patience.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/shape_advice.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/describe/report.h"
#include "client/cpp/client.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

constexpr char kFooter[] =
    R"(SHAPE is of the inputs:
  16384x16384              of a kernel of one input
  4096x2048x1024           MxNxK of a kernel of two inputs (matmul)
  8x128x64,64x256          one for each input, as of one with weights (layernorm):
  64x1024,1024,1024
--source prints nothing but files: what the implementation is written in
(cuda, triton, cpp, expression), and what was made of it (ptx, sass).)";

struct DescribeOptions {
  explicit DescribeOptions(const Arguments& arguments) : deadline(arguments) {
    arguments.Add("kernel", &problem.kernel, "A name from `warpcall kernels`").Required();
    arguments.Add("--shape", &problem.shape, "Of the inputs, see below")
        .Required()
        .TypeName("SHAPE");
    arguments.Add("--type", &problem.type, "Of the elements, default float32").IsDataType();
    arguments.Add("--implementation", &implementation,
                  "An implementation or a family; none: the one that the server would choose");
    arguments.AddRepeated("--attribute", &attributes, "name=value, once per attribute")
        .TypeName("NAME=VALUE");
    arguments.Add("--device", &device, "A name from `warpcall devices`; none: the server chooses");
    arguments.Add("--source", &source, "Print the files in this language")
        .OneOf({"cuda", "triton", "cpp", "expression", "ptx", "sass"});
    arguments.SetFooter(kFooter);
  }

  TimeoutOption deadline;
  ProblemText problem;
  std::string implementation;
  std::vector<std::string> attributes;
  std::string device;
  std::string source;
};

absl::StatusOr<client::DescribeCall> MakeCall(const DescribeOptions& options,
                                              const std::vector<client::KernelInfo>& kernels) {
  client::DescribeCall call{.kernel = options.problem.kernel,
                            .implementation = options.implementation,
                            .device = options.device};
  ASSIGN_OR_RETURN(call.attributes, ParseAttributes(options.attributes, call.kernel, kernels));
  ASSIGN_OR_RETURN(call.inputs, OneProblem(options.problem, call.attributes, kernels));
  return call;
}

absl::StatusOr<DescribeReport> Ask(client::DescribeCall call, Patience* patience,
                                   client::Client* client) {
  DescribeReport report{.kernel = call.kernel, .description = {}, .advice = {}};
  ASSIGN_OR_RETURN(report.description, patience->Spend([&](absl::Duration timeout) {
    call.timeout = timeout;
    return client->Describe(call);
  }));
  ASSIGN_OR_RETURN(const std::vector<client::DeviceInfo> devices,
                   client->ListDevices(patience->left()));
  for (const client::DeviceInfo& device : devices)
    if (device.name == report.description.device())
      report.advice = Advise(report.description, device);
  return report;
}

int Run(const Globals& globals, const DescribeOptions& options) {
  if (globals.json && !options.source.empty())
    return UsageError(absl::InvalidArgumentError("--json and --source both want stdout"));
  client::Client client(globals.server, OptionsOf(globals));
  const Choice choice{options.problem.kernel, {options.implementation}};
  Patience patience(options.deadline.duration());
  const auto kernels = patience.Spend(
      [&](absl::Duration timeout) { return ListKernelsWith(choice, &client, timeout); });
  if (!kernels.ok()) return Refused(kernels.status());
  const auto call = MakeCall(options, *kernels);
  if (!call.ok()) return UsageError(WithShapes(call.status(), options.problem.kernel, &client));
  absl::StatusOr<DescribeReport> report = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("describing ", call->kernel, " on ", globals.server));
    report = Ask(*call, &patience, &client);
  }
  if (!report.ok()) return Refused(report.status());
  if (globals.json) {
    PrintJson(ToJson(*report));
    return kExitOk;
  }
  if (options.source.empty()) {
    PrintText(ToText(*report));
    return kExitOk;
  }
  const absl::StatusOr<std::string> text = SourceText(report->description, options.source);
  if (!text.ok()) return Refused(text.status());
  PrintText(PrintableLines(*text, {}));  // without colours, which only our own text has
  return kExitOk;
}

}  // namespace

Command AddDescribeCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand(
      "describe", "Show what would run for a problem, how and why, without running it");
  const auto options = std::make_shared<DescribeOptions>(arguments);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

}  // namespace warpcall::cli
