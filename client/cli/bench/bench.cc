// warpcall bench: how fast implementations are, side by side, over shapes, types and devices.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/plot.h"
#include "client/cli/bench/report.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/command.h"
#include "client/cli/common/csv.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/common/tensor_text.h"
#include "client/cpp/client.h"
#include "kernels/common/status_macros.h"

namespace warpcall::cli {
namespace {

constexpr int kCountMax = std::numeric_limits<int32_t>::max();

constexpr char kFooter[] =
    R"(SHAPE is dimensions with x between them; braces stand for several:
  16384x16384              one shape
  1024x{256..262144:x2}    from 256 on, doubling, up to 262144
  {1024..8192:+1024}       in steps
  {256,512,4096}           each of these
Several braces: all combinations. At most 256 points, each a device, a type
and a shape.
Kernels of two inputs (matmul) take MxNxK for a[m,k] and b[k,n], stored as the
attributes transpose_a and transpose_b say, or both with a comma:
  warpcall bench softmax --shape '1024x{256..262144:x2}' --type bf16 --type f32
  warpcall bench matmul --shape '{1024,4096}x4096x4096' --plot matmul.svg
  warpcall bench matmul --shape 8x128x64,64x256 --implementation cuda
--deadline is for each point. %COPY is of the copy ceiling, what copying
reaches on the device; ERROR is |out - ref| / |ref| against float64.
Exit status: 0 all points were measured, 1 some were refused, 2 usage.)";

struct BenchOptions {
  explicit BenchOptions(const Arguments& arguments) : deadline(arguments) {
    arguments.Add("kernel", &kernel, "A name from `warpcall kernels`").Required();
    arguments
        .AddRepeated("--shape", &shapes, "Of the inputs, see below; several: one after the other")
        .Required()
        .TypeName("SHAPE");
    arguments.AddRepeated("--type", &types, "Of the elements, once per type; default f32")
        .IsDataType();
    arguments.AddRepeated("--implementation", &implementations,
                          "An implementation or a family, once each; none: all that fit");
    arguments.AddRepeated("--attribute", &attributes, "name=value, once per attribute")
        .TypeName("NAME=VALUE");
    arguments
        .AddRepeated(
            "--device", &devices,
            "A name from `warpcall devices`, or several with commas; none: the server chooses")
        .SplitAt(',')
        .TypeName("DEVICE");
    arguments.Add("--iterations", &iterations, "Samples of each; none: the server's default, 100")
        .Between(1, kCountMax);
    arguments.Add("--warmup", &warmup_iterations, "Before them; none: the server's default, 10")
        .Between(1, kCountMax);
    arguments.Add("--seed", &seed, "Of the inputs, N(0, 1)").ShowDefault();
    arguments.Add("--csv", &csv, "Write a line for each result; - is stdout, without the table")
        .TypeName("FILE");
    arguments.Add("--plot", &plot, "Draw time, share of the copy ceiling, and roofline")
        .TypeName("FILE.svg");
    arguments.SetFooter(kFooter);
  }

  TimeoutOption deadline;
  std::string kernel;
  std::vector<std::string> shapes;
  std::vector<std::string> types = {};
  std::vector<std::string> implementations;
  std::vector<std::string> attributes;
  std::vector<std::string> devices;
  int32_t iterations = 0;
  int32_t warmup_iterations = 0;
  uint64_t seed = 1;
  std::string csv;
  std::string plot;
};

absl::StatusOr<std::vector<ShapePoint>> AllShapes(const BenchOptions& options) {
  std::vector<ShapePoint> points;
  for (const std::string& text : options.shapes) {
    ASSIGN_OR_RETURN(std::vector<ShapePoint> more, ParseShapeSweep(text));
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

// Everything but the answers.
absl::StatusOr<BenchReport> Plan(const BenchOptions& options, const std::vector<ShapePoint>& shapes,
                                 const std::vector<client::KernelInfo>& kernels) {
  BenchReport report{.kernel = options.kernel};
  ASSIGN_OR_RETURN(report.attributes, ParseAttributes(options.attributes, options.kernel, kernels));
  const auto or_default = [](std::vector<std::string> values, const char* only) {
    return values.empty() ? std::vector<std::string>{only} : std::move(values);
  };
  for (const std::string& device : or_default(options.devices, "")) {
    for (const std::string& type : or_default(options.types, "f32")) {
      ASSIGN_OR_RETURN(const DataType data_type, ParseDataType(type));
      for (const ShapePoint& shape : shapes) {
        ASSIGN_OR_RETURN(const Shapes inputs,
                         InputShapes(shape, options.kernel, report.attributes, kernels));
        BenchPoint point{.shape = shape.text,
                         .data_type = data_type,
                         .call = {.kernel = options.kernel,
                                  .implementations = options.implementations,
                                  .attributes = report.attributes,
                                  .device = device,
                                  .warmup_iterations = options.warmup_iterations,
                                  .iterations = options.iterations,
                                  .seed = options.seed,
                                  .timeout = options.deadline.duration()}};
        for (const Shape& input : inputs) point.call.inputs.push_back({data_type, input});
        report.points.push_back(std::move(point));
      }
    }
  }
  return report;
}

// Fills in the answers; false when one was a refusal.
bool Measure(client::Client* client, BenchReport* report) {
  bool all = true;
  for (size_t i = 0; i < report->points.size(); ++i) {
    BenchPoint& point = report->points[i];
    const Progress progress(absl::StrCat(report->kernel, " ", point.shape, " ",
                                         DataTypeOption(point.data_type), ", point ", i + 1, " of ",
                                         report->points.size()));
    point.report = client->Benchmark(point.call);
    all = all && point.report.ok();
  }
  return all;
}

bool CsvIsFile(const BenchOptions& options) {
  return !options.csv.empty() && options.csv != kCsvToStdout;
}

absl::Status CheckFiles(const BenchOptions& options) {
  if (CsvIsFile(options)) RETURN_IF_ERROR(CheckOutput(options.csv));
  return CheckOutput(options.plot);
}

absl::Status Print(const Globals& globals, const BenchOptions& options, const BenchReport& report) {
  if (globals.json) {
    PrintJson(ToJson(report));
  } else {
    std::fputs((options.csv == kCsvToStdout ? ToCsv(report) : ToText(report)).c_str(), stdout);
  }
  if (CsvIsFile(options)) RETURN_IF_ERROR(WriteOutput(options.csv, ToCsv(report)));
  if (!options.plot.empty()) RETURN_IF_ERROR(WriteOutput(options.plot, BenchPlot(report)));
  return absl::OkStatus();
}

int Run(const Globals& globals, const BenchOptions& options) {
  if (globals.json && options.csv == kCsvToStdout)
    return UsageError(absl::InvalidArgumentError("--json and --csv - both want stdout"));
  const auto shapes = AllShapes(options);
  if (!shapes.ok()) return UsageError(shapes.status());
  client::Client client(globals.server);
  const auto kernels = client.ListKernels(options.deadline.duration());
  if (!kernels.ok()) return Refused(kernels.status());
  auto report = Plan(options, *shapes, *kernels);
  if (!report.ok()) return UsageError(report.status());
  if (const absl::Status status = CheckFiles(options); !status.ok()) return UsageError(status);
  const bool all = Measure(&client, &*report);
  if (const absl::Status status = Print(globals, options, *report); !status.ok())
    return UsageError(status);
  return all ? kExitOk : kExitRefused;
}

}  // namespace

Command AddBenchCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand(
      "bench", "Time implementations of a kernel side by side on a device, without transfers");
  const auto options = std::make_shared<BenchOptions>(arguments);
  return {arguments, [&globals, options] { return Run(globals, *options); }};
}

}  // namespace warpcall::cli
