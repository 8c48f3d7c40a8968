// warpcall profile: what the device does for one call.
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/command.h"
#include "client/cli/common/csv.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/common/table.h"
#include "client/cli/profile/report.h"
#include "client/cpp/client.h"
#include "kernels/common/status_macros.h"

namespace warpcall::cli {
namespace {

constexpr int kIterationsMax = std::numeric_limits<int32_t>::max();
constexpr uint64_t kSeedDefault = 1;

constexpr char kFooter[] =
    R"(Inputs are files (--input) or random, N(0, 1), made by the server, of one --shape:
  16384x16384              of a kernel of one input
  4096x2048x1024           MxNxK of a kernel of two inputs (matmul)
  8x128x64,64x256          one for each input
The table has what took the device most time: kernels, copies, sets, and gaps,
in which it had nothing to do. SHARE is of the time from the first to the last
of them.)";

struct ProfileOptions {
  explicit ProfileOptions(const Arguments& arguments) : deadline(arguments) {
    arguments.Add("kernel", &kernel, "A name from `warpcall kernels`").Required();
    const Option input =
        arguments.AddRepeated("--input", &inputs, "A .npy file; once per input, in order")
            .TypeName("FILE");
    arguments.Add("--shape", &shape, "Instead of files: of random inputs, see below")
        .Excludes(input)
        .TypeName("SHAPE");
    arguments
        .Add("--type", &type,
             "Of random elements, default f32, or that files must have; bf16 takes uint16 "
             "files for bfloat16")
        .IsDataType();
    profile.seed = kSeedDefault;
    arguments.Add("--seed", &profile.seed, "Of random inputs").ShowDefault();
    arguments.AddFlag(
        "--request", &profile.request_path,
        "Of random inputs: take the path of a request, copies and rounds included, as "
        "files do; none: the kernel runs whole, on device memory");
    arguments.Add("--implementation", &profile.call.options.implementation,
                  "An implementation or a family; none: the server chooses");
    arguments.AddRepeated("--attribute", &attributes, "name=value, once per attribute")
        .TypeName("NAME=VALUE");
    arguments.Add("--device", &profile.call.options.device,
                  "A name from `warpcall devices`; none: the server chooses");
    arguments
        .Add("--iterations", &profile.iterations,
             "How often the call runs; none: the server's default, 3")
        .Between(1, kIterationsMax);
    arguments.Add("--trace", &trace, "Write a trace for ui.perfetto.dev").TypeName("FILE.json");
    arguments.Add("--csv", &csv, "Write a line for each row; - is stdout, without the table")
        .TypeName("FILE");
    arguments.SetFooter(kFooter);
  }

  TimeoutOption deadline;
  std::string kernel;
  std::vector<std::string> inputs;
  std::string shape;
  std::string type;
  std::vector<std::string> attributes;
  std::string trace;
  std::string csv;
  client::ProfileCall profile;  // but for what depends on the kernel
};

absl::StatusOr<client::ProfileCall> MakeCall(const ProfileOptions& options,
                                             const std::vector<client::KernelInfo>& kernels) {
  client::ProfileCall profile = options.profile;
  client::Call& call = profile.call;
  call.kernel = options.kernel;
  call.options.timeout = options.deadline.duration();
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

absl::Status WriteTrace(const ProfileOptions& options, const client::ProfileReport& report) {
  RETURN_IF_ERROR(WriteOutput(options.trace, report.trace_json));
  // With --json stdout is the value's alone.
  std::fprintf(stderr, "warpcall: trace of %s in %s: open it at https://ui.perfetto.dev\n",
               HumanBytes(static_cast<double>(report.trace_json.size())).c_str(),
               options.trace.c_str());
  return absl::OkStatus();
}

bool CsvIsFile(const ProfileOptions& options) {
  return !options.csv.empty() && options.csv != kCsvToStdout;
}

absl::Status CheckFiles(const ProfileOptions& options) {
  if (CsvIsFile(options)) RETURN_IF_ERROR(CheckOutput(options.csv));
  return CheckOutput(options.trace);
}

absl::Status Print(const Globals& globals, const ProfileOptions& options,
                   const client::ProfileReport& report) {
  if (globals.json) {
    PrintJson(ToJson(options.kernel, report));
  } else {
    std::fputs((options.csv == kCsvToStdout ? ToCsv(options.kernel, report)
                                            : ToText(options.kernel, report))
                   .c_str(),
               stdout);
  }
  if (!CsvIsFile(options)) return absl::OkStatus();
  return WriteOutput(options.csv, ToCsv(options.kernel, report));
}

int Run(const Globals& globals, const ProfileOptions& options) {
  if (options.inputs.empty() == options.shape.empty())
    return UsageError(absl::InvalidArgumentError("--input or --shape is required"));
  if (globals.json && options.csv == kCsvToStdout)
    return UsageError(absl::InvalidArgumentError("--json and --csv - both want stdout"));
  client::Client client(globals.server);
  const auto kernels = client.ListKernels(options.deadline.duration());
  if (!kernels.ok()) return Refused(kernels.status());
  const auto call = MakeCall(options, *kernels);
  if (!call.ok()) return UsageError(call.status());
  if (const absl::Status status = CheckFiles(options); !status.ok()) return UsageError(status);

  absl::StatusOr<client::ProfileReport> report = absl::UnknownError("not called");
  {
    const Progress progress(absl::StrCat("profiling ", options.kernel, " on ", globals.server));
    report = client.Profile(*call);
  }
  if (!report.ok()) return Refused(report.status());
  if (const absl::Status status = Print(globals, options, *report); !status.ok())
    return UsageError(status);
  if (options.trace.empty()) return kExitOk;
  if (report->trace_json.empty())
    return Refused(absl::InternalError("the server sent no trace, though one was asked for"));
  if (const absl::Status status = WriteTrace(options, *report); !status.ok())
    return UsageError(status);
  return kExitOk;
}

}  // namespace

Command AddProfileCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments =
      root.AddSubcommand("profile", "Show what the device does for a kernel, and when");
  const auto options = std::make_shared<ProfileOptions>(arguments);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

}  // namespace warpcall::cli
