// warpcall bench: how fast implementations are, side by side, over shapes, types and devices; and
// warpcall tune, after which the server runs the fastest.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/bench/outputs.h"
#include "client/cli/bench/report.h"
#include "client/cli/common/candidate.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/inputs.h"
#include "client/cli/common/interrupt.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/common/table.h"
#include "client/cli/common/tensor_text.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

constexpr double kNoisePercentMin = 0.001;
constexpr double kNoisePercentMax = 100;
// An exit status of a program that a signal ended, as shells have it.
constexpr int kExitSignal = 128;

constexpr char kFooter[] =
    R"(SHAPE is dimensions with x between them; braces sweep one of them:
  16384x16384              one shape
  1024x{256..262144:x2}    256 to 262144, doubling
  {1024..8192:+1024}       1024 to 8192 in steps of 1024
  {256,512,4096}           each of these
Several braces give all combinations, or with --zip their first values, then
their second ones, and so on. A run has at most 256 points; a point is a device,
a type and a shape.
For matmul MxNxK stands for a[m,k] and b[k,n], stored as the attributes
transpose_a and transpose_b say; for linear for x[m,k], weight[n,k] and bias[n].
For layernorm and rmsnorm MxN stands for x, with weights of N elements. Or give
one comma-separated shape per input:
  warpcall bench softmax --shape '1024x{256..262144:x2}' --type bf16 --type f32
  warpcall bench matmul --shape '{1024,4096}x4096x4096' --plot matmul.svg
  warpcall bench matmul --shape 8x128x64,64x256 --implementation cuda
  warpcall bench linear --shape '{1,64}x4096x1024'
--input takes the types and shapes of .npy files instead, one file per input.
The values are always random N(0, 1) numbers that the server makes.
A row is one implementation. Samples of different rows are interleaved. A row
predicted to take longer than its time limit is skipped; the table then shows
how to measure it anyway.
--deadline applies to each point; rows measured before it are shown.
MEDIAN and MIN are over N samples. NOISE is the standard error of the median, as
a percentage of the median. %COPY is the bandwidth as a percentage of that of a
copy of the same size. If less than 1/16 of the bytes are output, %READ stands
in its place: the bandwidth as a percentage of that of reads alone. %MADD is the
FLOP/s as a percentage of those of multiply-adds alone. All are measured in the
same run. ERROR is |out - ref| / |ref| against float64, over the elements that
are checked. VS BEST is the median divided by that of the fastest row: ~ if the
two can't be told apart or the row is unstable, "unstable" or - if the fastest
row is not known. With --method settled, MHz and W are the GPU's clock and power
while the row was timed, mJ its energy for one launch, and FLOP/CYCLE the
arithmetic in a cycle of that clock.
Ctrl-C stops the run; the results so far are printed and written.
Exit status: 0 each point has measured rows, others may have been skipped, 1 a
point was refused, has no measured row or was ended by --deadline, 2 usage
error, 130 Ctrl-C.)";

constexpr char kTuneFooter[] =
    R"(Times the implementations of each problem as `warpcall bench` does, and checks
their results. Afterwards the server runs the fastest correct one for requests
that name none or only a family, and never a wrong one. This holds for problems
of the same types, attributes and alignment and about the same sizes (within a
factor of 2^(1/4)). The server keeps the choice in its --tuning_cache.
`warpcall help bench` documents SHAPE, --input, --device and exit status:
  warpcall tune softmax --shape '{1024,16384}x{256..65536:x2}' --type bf16
  warpcall tune matmul --shape 4096x4096x4096 --attribute precision=tf32
`warpcall describe` shows the choice and its reason.)";

struct BenchOptions {
  BenchOptions(const Arguments& arguments, bool tunes) : deadline(arguments), tunes(tunes) {
    arguments.Add("kernel", &kernel, "Name of a kernel from `warpcall kernels`").Required();
    const Option shape =
        arguments
            .AddRepeated("--shape", &shapes,
                         "Set the inputs' shapes, see below; repeat for several problems")
            .TypeName("SHAPE");
    arguments.AddFlag("--zip", &zip, "Pair the values of several braces instead of combining them");
    arguments
        .AddRepeated(
            "--input", &inputs,
            "Take an input's type and shape from a .npy file; repeat for each input, in order")
        .Excludes(shape)
        .TypeName("FILE");
    arguments
        .AddRepeated("--type", &types, "Set the element type; repeat for several; default float32")
        .IsDataType();
    arguments
        .AddRepeated("--implementation", &implementations,
                     "Time this implementation (cuda) or variant (cuda:two_pass), or several, "
                     "comma-separated; default: all that fit")
        .SplitAt(',');
    arguments
        .AddRepeated("--attribute", &attributes,
                     "Set an attribute of the kernel; repeat for several")
        .TypeName("NAME=VALUE");
    arguments
        .AddRepeated("--device", &devices,
                     "Time on this device from `warpcall devices`, or several, comma-separated; "
                     "default: server's choice")
        .SplitAt(',')
        .TypeName("DEVICE");
    AddLimits(arguments);
    arguments.Add("--seed", &seed, "Seed the random N(0, 1) inputs").ShowDefault();
    arguments.Add("--csv", &outputs.csv, "Write a line per result; - is stdout, without the table")
        .TypeName("FILE");
    arguments
        .Add("--plot", &outputs.plot,
             "Draw time, share of the memory ceiling and roofline; - is stdout, without the table")
        .TypeName("FILE.svg");
    arguments
        .Add(
            "--baseline", &outputs.baseline,
            "Compare with an earlier output of `warpcall bench --json`, as `warpcall compare` does")
        .TypeName("FILE.json");
    arguments.SetFooter(tunes ? kTuneFooter : kFooter);
  }
  // How long to measure; and what the server times by limits of its own.
  void AddLimits(const Arguments& arguments) {
    const Option samples = arguments
                               .Add("--iterations", &iterations,
                                    "Number of samples per row; default: the server's, 100")
                               .Between(1, kBenchmarkIterationsMax);
    const Option warmup =
        arguments
            .Add("--warmup", &warmup_iterations,
                 "Number of untimed runs before the samples; default: the server's, 10")
            .Between(1, kBenchmarkIterationsMax);
    const Option max_noise =
        arguments
            .Add("--max-noise", &max_noise_percent,
                 "Stop a row when its noise is below this; default: after --iterations")
            .Between(kNoisePercentMin, kNoisePercentMax)
            .TypeName("PERCENT");
    const Option timeout = arguments
                               .Add("--timeout", &row_timeout,
                                    "Time limit for one row, in seconds or as 500ms, 2m; default: "
                                    "the server's, 1 s if it has "
                                    "some samples by then, else 10 s")
                               .TypeName("DURATION");
    if (tunes) return;
    const Option how =
        arguments
            .Add("--method", &method,
                 "Take samples of all rows in turn (burst), or run each row until the clock has "
                 "settled and time it for 6 s (settled), with clock, power and energy; default: "
                 "burst")
            .OneOf({kBenchmarkBurst, kBenchmarkSettled})
            .Excludes(samples)
            .Excludes(max_noise)
            .Excludes(timeout);
    candidate
        .Add(arguments,
             "Also time this kernel of yours, if the server finds it correct; without "
             "--implementation, against the fastest vendor-library implementation and the "
             "fastest of the server's own")
        .Excludes(warmup)
        .Excludes(max_noise)
        .Excludes(timeout)
        .Excludes(how);
  }

  TimeoutOption deadline;
  std::string kernel;
  std::vector<std::string> shapes;
  bool zip = false;
  std::vector<std::string> inputs;
  std::vector<std::string> types = {};
  std::vector<std::string> implementations;
  std::vector<std::string> attributes;
  std::vector<std::string> devices;
  int32_t iterations = 0;
  int32_t warmup_iterations = 0;
  double max_noise_percent = 0;
  std::string row_timeout;
  std::string method;
  uint64_t seed = 1;
  CandidateOption candidate;
  BenchOutputs outputs;
  const bool tunes;
};

absl::Status CheckSources(const BenchOptions& options) {
  if (options.shapes.empty() && options.inputs.empty())
    return absl::InvalidArgumentError("--shape or --input is required");
  if (!options.inputs.empty() && options.types.size() > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("--type is given ", options.types.size(),
                     " times; with --input it may be given once, since the files have a type"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ShapePoint>> AllShapes(const BenchOptions& options) {
  std::vector<ShapePoint> points;
  for (const std::string& text : options.shapes) {
    ASSIGN_OR_RETURN(std::vector<ShapePoint> more,
                     ParseShapeSweep(text, options.zip ? Braces::kZipped : Braces::kCombined));
    points.insert(points.end(), more.begin(), more.end());
  }
  const size_t devices = std::max<size_t>(options.devices.size(), 1);
  const size_t types = std::max<size_t>(options.types.size(), 1);
  if (points.size() * devices * types > kSweepPointsMax)
    return absl::InvalidArgumentError(
        absl::StrCat(points.size(), " shapes (--shape) of ", types, " types (--type) on ", devices,
                     " devices (--device) are ", points.size() * devices * types,
                     " points; at most ", kSweepPointsMax, " are allowed"));
  return points;
}

// Reads the type and shape of each input from the files. They are read only once for all points,
// since one of them may be stdin.
absl::StatusOr<std::vector<client::TensorSpec>> ReadSpecs(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<client::Tensor> tensors,
                   ReadInputs(options.inputs, options.types.empty() ? "" : options.types[0]));
  std::vector<client::TensorSpec> specs;
  for (const client::Tensor& tensor : tensors)
    specs.push_back({tensor.data_type(), {tensor.shape().begin(), tensor.shape().end()}});
  return specs;
}

// One point, of these inputs.
void AddFilePoint(const std::vector<client::TensorSpec>& specs, const BenchPoint& base,
                  BenchReport* report) {
  BenchPoint point = base;
  point.data_type = specs[0].data_type;
  point.call.inputs = specs;
  point.shape = absl::StrJoin(specs, ",", [](std::string* out, const client::TensorSpec& spec) {
    absl::StrAppend(out, absl::StrJoin(spec.shape, "x"));
  });
  report->points.push_back(std::move(point));
}

// One point for each type and shape; `shapes` has those of all inputs.
absl::Status AddShapePoints(const BenchOptions& options, const std::vector<ShapePoint>& shapes,
                            const BenchPoint& base, BenchReport* report) {
  const std::vector<std::string> types =
      options.types.empty() ? std::vector<std::string>{"float32"} : options.types;
  for (const std::string& type : types) {
    ASSIGN_OR_RETURN(const DataType data_type, ParseDataType(type));
    for (const ShapePoint& shape : shapes) {
      BenchPoint point = base;
      point.shape = shape.text;
      point.data_type = data_type;
      for (const Shape& input : shape.shapes) point.call.inputs.push_back({data_type, input});
      report->points.push_back(std::move(point));
    }
  }
  return absl::OkStatus();
}

// Everything but the answers.
absl::StatusOr<BenchReport> Plan(const BenchOptions& options, std::vector<ShapePoint> shapes,
                                 const std::vector<client::KernelInfo>& kernels) {
  BenchReport report{.kernel = options.kernel, .tunes = options.tunes};
  ASSIGN_OR_RETURN(report.attributes, ParseAttributes(options.attributes, options.kernel, kernels));
  for (ShapePoint& shape : shapes) {
    ASSIGN_OR_RETURN(shape.shapes, InputShapes(shape, options.kernel, report.attributes, kernels));
  }
  ASSIGN_OR_RETURN(const absl::Duration row_timeout, ParseTimeout(options.row_timeout));
  ASSIGN_OR_RETURN(const std::vector<client::TensorSpec> specs, ReadSpecs(options));
  const std::vector<std::string> devices =
      options.devices.empty() ? std::vector<std::string>{""} : options.devices;
  for (const std::string& device : devices) {
    const BenchPoint base{.call = {.kernel = options.kernel,
                                   .implementations = options.implementations,
                                   .attributes = report.attributes,
                                   .device = device,
                                   .warmup_iterations = options.warmup_iterations,
                                   .iterations = options.iterations,
                                   .seed = options.seed,
                                   .max_noise = options.max_noise_percent / 100,
                                   .row_timeout = row_timeout,
                                   .method = options.method,
                                   .timeout = options.deadline.duration()}};
    if (specs.empty()) {
      RETURN_IF_ERROR(AddShapePoints(options, shapes, base, &report));
    } else {
      AddFilePoint(specs, base, &report);
    }
  }
  return report;
}

// Reads the --baseline file, if one is given; it must be for the same kernel.
absl::StatusOr<std::optional<Measurements>> ReadBaseline(const BenchOptions& options) {
  if (options.outputs.baseline.empty()) return std::optional<Measurements>();
  ASSIGN_OR_RETURN(Measurements baseline, ReadMeasurements(options.outputs.baseline));
  if (baseline.kernel != options.kernel)
    return absl::InvalidArgumentError(absl::StrCat("--baseline ", options.outputs.baseline,
                                                   " is of ", baseline.kernel, ", not ",
                                                   options.kernel));
  return std::optional(std::move(baseline));
}

constexpr char kInterrupted[] = "interrupted";
constexpr char kGone[] = "the server is gone";
// A server that does not say within this time that it serves is gone.
constexpr absl::Duration kHealthTimeout = absl::Seconds(5);

std::string News(const client::BenchmarkResult& result) {
  if (result.predicted_ns() > 0) return absl::StrCat(PinnedName(result), " skipped");
  if (!result.error().empty()) return absl::StrCat(PinnedName(result), " did not run");
  const std::string noise =
      result.median_high_ns() > 0 ? absl::StrFormat(", noise %.1f%%", result.noise() * 100) : "";
  return absl::StrCat(PinnedName(result), " ", HumanTime(result.median_ns()), noise);
}

void MeasurePoint(client::Client* client, const std::string& title,
                  client::Cancellation* cancellation, BenchPoint* point) {
  Progress progress(title);
  int told = 0;
  const auto tell = [&](const client::BenchmarkReport& so_far) {
    for (; told < so_far.results_size(); ++told) progress.Show(News(so_far.results(told)));
    return absl::OkStatus();
  };
  point->asked = true;
  point->status = client->BenchmarkStream(
      point->call, {.progress = tell, .cancellation = cancellation}, &point->report);
}

// Rows are told when all are measured.
void TunePoint(client::Client* client, const std::string& title, client::Cancellation* cancellation,
               BenchPoint* point) {
  const Progress progress(title);
  point->asked = true;
  absl::StatusOr<client::BenchmarkReport> report = client->Tune(point->call, cancellation);
  point->status = report.status();
  if (!report.ok()) return;
  point->report = *std::move(report);
  const auto served = client->Describe({.kernel = point->call.kernel,
                                        .inputs = point->call.inputs,
                                        .attributes = point->call.attributes,
                                        .device = point->report.device(),
                                        .timeout = point->call.timeout});
  // The table says what was measured, whether or not this can be said.
  if (!served.ok()) return;
  point->served = PinnedName(*served);
  point->served_because = served->chosen_because();
}

// The kernel of `source` first. A verdict other than PASSED leaves it without times, and is the
// point's error.
void TakeCandidate(const PushSource& source, const CandidateResult& result, BenchPoint* point) {
  client::BenchmarkReport& report = point->report;
  const v1::PushTimed& timed = result.timed();
  *report.mutable_results() = timed.results();
  report.set_ceiling_bytes_per_second(timed.ceiling_bytes_per_second());
  report.set_flops_ceiling(timed.flops_ceiling());
  *report.mutable_stamp() = result.verdict().stamp();
  // A push does not say on which of several devices it ran.
  report.set_device(point->call.device.empty() ? result.verdict().stamp().device_description()
                                               : point->call.device);
  if (result.passed()) return;
  point->status = absl::FailedPreconditionError(absl::StrCat(source.path, ": ", result.WhyNot()));
  if (report.results_size() == 0) return;
  client::BenchmarkResult wrong;
  wrong.set_implementation(report.results(0).implementation());
  wrong.set_family(report.results(0).family());
  wrong.set_error(result.verdict().status());
  *report.mutable_results(0) = std::move(wrong);
}

void PushPoint(client::Client* client, const PushSource& source, client::Cancellation* cancellation,
               BenchPoint* point) {
  point->asked = true;
  client::PushCall call = CallOf(source);
  call.problems = {{.inputs = point->call.inputs, .attributes = point->call.attributes}};
  call.seed = point->call.seed;
  call.iterations = point->call.iterations;
  call.compare_with = point->call.implementations;
  call.device = point->call.device;
  call.timeout = point->call.timeout;
  const absl::StatusOr<CandidateResult> result = PushCandidate(call, cancellation, client);
  point->status = result.status();
  if (result.ok()) TakeCandidate(source, *result, point);
}

// The call under way ended because the command did.
void MarkInterrupted(BenchPoint* point) {
  if (point->status.ok()) return;
  point->asked = !point->report.results().empty();
  point->status =
      absl::CancelledError(absl::StrCat(point->asked ? "" : "not measured: ", kInterrupted));
}

// After UNAVAILABLE: true if the whole server is gone, rather than only the point's device.
bool IsGone(client::Client* client) {
  const auto health = client->Health("", kHealthTimeout);
  return !health.ok() || *health != client::ServingStatus::kServing;
}

// Fills in what the server says of itself, as far as it does.
void DescribeServer(client::Client* client, absl::Duration timeout, BenchServer* server) {
  if (const auto devices = client->ListDevices(timeout); devices.ok())
    for (const client::DeviceInfo& device : *devices)
      server->device_kinds[device.name] = device.kind;
  if (const auto info = client->ServerInfo(timeout); info.ok()) {
    server->host = info->hostname;
    server->version = info->version;
  }
}

// Fills in the points, one after the other, and calls `show` for each when it is done. SIGINT,
// SIGTERM or SIGHUP, and a server that is gone, end the point under way, which keeps what came of
// it; the others are then shown as not measured, as are those of a device that was unavailable
// while the server was not. Returns the signal; 0: none came.
int MeasurePoints(client::Client* client, BenchReport* report,
                  const std::optional<PushSource>& candidate,
                  const std::function<void(const BenchPoint&)>& show) {
  client::Cancellation cancellation;
  const Interrupt interrupt([&](int) {
    PrintNote(
        absl::StrCat(report->tunes ? "tune" : "bench", ": interrupted; what was measured is kept"));
    cancellation.Cancel();
  });
  const char* end = nullptr;   // why nothing is measured any more
  std::set<std::string> lost;  // devices on which nothing is
  for (size_t i = 0; i < report->points.size(); ++i) {
    BenchPoint& point = report->points[i];
    if (interrupt.signal() != 0) end = kInterrupted;
    if (end != nullptr) {
      point.status = absl::CancelledError(absl::StrCat("not measured: ", end));
    } else if (lost.count(point.call.device) > 0) {
      point.status = absl::CancelledError(
          absl::StrCat("not measured: ", point.call.device, " is unavailable"));
    } else {
      const std::string title = absl::StrCat(report->kernel, " ", ProblemTitle(point), ", point ",
                                             i + 1, " of ", report->points.size());
      if (candidate.has_value()) {
        const Progress progress(title);
        PushPoint(client, *candidate, &cancellation, &point);
      } else {
        const auto measure = report->tunes ? TunePoint : MeasurePoint;
        measure(client, title, &cancellation, &point);
      }
      if (absl::IsUnavailable(point.status) && IsGone(client)) end = kGone;
      // An unnamed device is not known to be lost: the server may choose another next time.
      if (absl::IsUnavailable(point.status) && !point.call.device.empty())
        lost.insert(point.call.device);
      if (interrupt.signal() != 0) MarkInterrupted(&point);
    }
    show(point);
  }
  return interrupt.signal();
}

// Files that the command line names, as they were read.
struct BenchFiles {
  std::optional<PushSource> candidate = {};
  std::optional<Measurements> baseline = {};
};

int Measure(client::Client* client, const BenchOptions& options, const BenchFiles& files,
            BenchReport* report) {
  DescribeServer(client, options.deadline.duration(), &report->server);
  BenchText text(report);
  const bool prints = PrintsText(options.outputs);
  if (prints) PrintText(text.Heading());
  const int signal = MeasurePoints(client, report, files.candidate, [&](const BenchPoint& point) {
    if (!prints) return;
    PrintText(text.Point(point));
    FlushOutput();
  });
  const absl::Status status = WriteOutputs(options.outputs, *report, files.baseline);
  if (!status.ok()) return Fail(status, signal != 0 ? kExitSignal + signal : kExitUsage);
  if (signal != 0)
    return FailShown(absl::CancelledError(absl::StrCat("interrupted by signal ", signal)),
                     kExitSignal + signal);
  const absl::Status outcome = Outcome(*report);
  return outcome.ok() ? kExitOk : FailShown(outcome, kExitRefused);
}

absl::StatusOr<BenchFiles> ReadFiles(const BenchOptions& options) {
  BenchFiles files;
  ASSIGN_OR_RETURN(files.baseline, ReadBaseline(options));
  if (!options.candidate.given()) return files;
  ASSIGN_OR_RETURN(files.candidate, options.candidate.Read(options.kernel));
  return files;
}

int Run(const Globals& globals, const BenchOptions& options) {
  if (const absl::Status status = CheckSources(options); !status.ok()) return UsageError(status);
  if (const absl::Status status = CheckOutputs(options.outputs); !status.ok())
    return UsageError(status);
  const auto shapes = AllShapes(options);
  if (!shapes.ok()) return UsageError(shapes.status());
  const absl::StatusOr<BenchFiles> files = ReadFiles(options);
  if (!files.ok()) return UsageError(files.status());
  client::Client client(globals.server, OptionsOf(globals));
  const auto kernels = ListKernelsWith({options.kernel, options.implementations}, &client,
                                       options.deadline.duration());
  if (!kernels.ok()) return Refused(kernels.status());
  auto report = Plan(options, *shapes, *kernels);
  if (!report.ok()) return UsageError(report.status());
  report->server.address = globals.server;
  return Measure(&client, options, *files, &*report);
}

}  // namespace

Command AddBenchCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand(
      "bench", "Time implementations of a kernel side by side on a device, without transfers");
  const auto options = std::make_shared<BenchOptions>(arguments, /*tunes=*/false);
  return {arguments, [&globals, options] {
            options->outputs.json = globals.json;
            return Run(globals, *options);
          }};
}

Command AddTuneCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand(
      "tune", "Time implementations of a kernel and make the server run the fastest from then on");
  const auto options = std::make_shared<BenchOptions>(arguments, /*tunes=*/true);
  return {arguments, [&globals, options] {
            options->outputs.json = globals.json;
            return Run(globals, *options);
          }};
}

}  // namespace warpcall::cli
