// warpcall push: has the server compile, check and time a kernel that the user wrote.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/command.h"
#include "client/cli/common/interrupt.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/output_file.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/push_source.h"
#include "client/cli/common/shape_sweep.h"
#include "client/cli/push/file_watch.h"
#include "client/cli/push/page.h"
#include "client/cli/push/report.h"
#include "proto/common/inspect_limits.h"
#include "proto/common/status_macros.h"
#include "warpcall/client.h"

namespace warpcall::cli {
namespace {

namespace fs = std::filesystem;

// The server judges for at most 60 s from when the push leaves the queue.
constexpr double kDeadlineSeconds = 90;
// An exit status of a program that a signal ended, as shells have it.
constexpr int kExitSignal = 128;

// In front of the shortest manifest and behind it.
constexpr char kFooterHead[] =
    R"(The server compiles the kernel, checks its results against the definition of
the op, element by element, and times it beside the fastest other
implementations. Only device code is pushed. A manifest says what the kernel
computes and how it is launched; the code begins with it, in // comments, or it
is JSON in a file of its own (--manifest). The shortest manifest:
)";
constexpr char kFooterTail[] =
    R"(Expressions may use rows, cols and elements of the first input, shapes as
x.shape[0], for matmul and linear m, n, k and batch, and + - * / % ceil(a / b)
min max next_pow2.
Without --shape the server draws problems from the manifest's examples and the
op's own cases. `warpcall help bench` documents SHAPE:
  warpcall push softmax.cu
  warpcall push softmax.cu --shape 4096x1024 --shape '1024x{1024,4096}'
  warpcall push softmax.cu --watch --html softmax.html
Errors are in units of the bound that the op's arithmetic gives; up to 1 is
correct. %COPY and %MADD are shares of the device's measured copy bandwidth and
multiply-adds. VS PUSH is the median divided by that of the push.
--json prints one object with all events and the verdict, per push.
Exit status: 0 PASSED, 1 server refused or unreachable, 2 usage error,
3 judged and not PASSED, 4 NOT_SUPPORTED (this server cannot judge it),
5 INTERNAL_ERROR (the server failed to judge it: push it again), 130 Ctrl-C.
With --watch the last verdict decides.)";

struct PushOptions {
  explicit PushOptions(const Arguments& arguments) : deadline(arguments, kDeadlineSeconds) {
    arguments.Add("file", &file, "File of CUDA C++, at most 4 MiB").Required();
    arguments
        .Add("--manifest", &manifest,
             "Read the manifest from this file; default: the comment that the code begins with")
        .TypeName("FILE.json");
    const Option shape =
        arguments
            .AddRepeated("--shape", &shapes,
                         "Judge problems of these input shapes; repeat for several")
            .TypeName("SHAPE");
    arguments
        .AddRepeated("--type", &types,
                     "Set the element type of --shape; repeat for several; default: the manifest's")
        .Needs(shape)
        .IsDataType();
    arguments
        .AddRepeated("--attribute", &attributes,
                     "Set an attribute of the problems of --shape; repeat for several")
        .Needs(shape)
        .TypeName("NAME=VALUE");
    const Option compare =
        arguments
            .AddRepeated(
                "--compare-with", &compare_with,
                "Time this implementation for comparison, or none; repeat for several; default: "
                "the fastest vendor-library implementation and the fastest of the server's own")
            .TypeName("IMPLEMENTATION");
    arguments.AddFlag("--check-only", &check_only, "Check the results and time nothing")
        .Excludes(compare);
    arguments
        .Add("--iterations", &iterations, "Number of samples of each time; default: the server's")
        .Between(1, kBenchmarkIterationsMax);
    arguments.Add("--seed", &seed, "Seed the inputs, to repeat an earlier run; 0: new inputs")
        .ShowDefault();
    arguments.Add("--device", &device,
                  "Judge on this device from `warpcall devices`; default: server's choice");
    arguments.AddFlag("--fresh", &fresh,
                      "Judge the kernel again even if the server has a stored verdict; currently "
                      "servers store none");
    arguments
        .Add("--timeout", &timeout,
             "Time limit at the server, including the wait in its queue, in seconds or as 500ms, "
             "at most 60 s; default: only --deadline applies")
        .TypeName("DURATION");
    arguments.AddFlag("--with-files", &with_files, "Write PTX and SASS beside the code");
    arguments.Add("--files", &files_folder, "Write PTX and SASS to this folder").TypeName("FOLDER");
    arguments.Add("--html", &html, "Write a page with verdict, times, errors and roofline")
        .TypeName("FILE.html");
    arguments.AddFlag("--watch", &watch, "Push again whenever the files are saved, until Ctrl-C");
    arguments.SetFooter(absl::StrCat(kFooterHead, kShortestManifest, kFooterTail));
  }

  TimeoutOption deadline;
  std::string file;
  std::string manifest;
  std::vector<std::string> shapes;
  std::vector<std::string> types;
  std::vector<std::string> attributes;
  std::vector<std::string> compare_with;
  bool check_only = false;
  int32_t iterations = 0;
  uint64_t seed = 0;
  std::string device;
  bool fresh = false;
  std::string timeout;
  bool with_files = false;
  std::string files_folder;
  std::string html;
  bool watch = false;

  bool wants_files() const { return with_files || !files_folder.empty(); }
};

absl::Status CheckOptions(const PushOptions& options) {
  RETURN_IF_ERROR(ParseTimeout(options.timeout).status());
  RETURN_IF_ERROR(CheckApart(
      {{"the code", options.file}, {"--manifest", options.manifest}, {"--html", options.html}}));
  std::error_code none;
  if (!options.files_folder.empty() && !fs::is_directory(options.files_folder, none))
    return absl::InvalidArgumentError(
        absl::StrCat("--files ", options.files_folder, ": there is no such folder"));
  return CheckOutput(options.html);
}

// The problems of --shape. INVALID_ARGUMENT for shapes that the op does not take.
absl::StatusOr<std::vector<client::PushProblem>> MakeProblems(
    const PushOptions& options, const PushSource& source,
    const std::vector<client::KernelInfo>& kernels) {
  std::vector<client::PushProblem> problems;
  ASSIGN_OR_RETURN(const AttributeMap attributes,
                   ParseAttributes(options.attributes, source.op, kernels));
  std::vector<DataType> types;
  for (const std::string& text : options.types) {
    ASSIGN_OR_RETURN(types.emplace_back(), ParseDataType(text));
  }
  if (types.empty()) types = source.types;
  if (types.empty()) types = {DataType::kFloat32};
  for (const DataType type : types) {
    for (const std::string& text : options.shapes) {
      ASSIGN_OR_RETURN(const std::vector<ShapePoint> points, ParseShapeSweep(text));
      for (const ShapePoint& point : points) {
        ASSIGN_OR_RETURN(const Shapes shapes, InputShapes(point, source.op, attributes, kernels));
        client::PushProblem& problem = problems.emplace_back();
        problem.attributes = attributes;
        for (const Shape& shape : shapes) problem.inputs.push_back({type, shape});
      }
    }
  }
  if (problems.size() <= size_t{kSweepPointsMax}) return problems;
  return absl::InvalidArgumentError(absl::StrCat("--shape and --type name ", problems.size(),
                                                 " problems; at most ", kSweepPointsMax,
                                                 " are allowed"));
}

client::PushCall MakeCall(const PushOptions& options, const PushSource& source) {
  return {.code = source.code,
          .manifest_json = source.manifest_json,
          .seed = options.seed,
          .iterations = options.iterations,
          .compare_with = options.compare_with,
          .check_only = options.check_only,
          .device = options.device,
          .fresh = options.fresh,
          .with_files = options.wants_files(),
          .judge_timeout = *ParseTimeout(options.timeout),
          .timeout = options.deadline.duration()};
}

// Writes PTX and SASS as NAME.TYPE.ptx. Nothing of the server's text becomes a file's name.
absl::Status WriteFiles(const PushOptions& options, const PushReport& report) {
  const fs::path code(options.file);
  const fs::path folder =
      options.files_folder.empty() ? code.parent_path() : fs::path(options.files_folder);
  std::map<std::string, int> written;
  for (const client::PushEvent& event : report.events) {
    for (const client::SourceFile& file : event.compiled().files()) {
      if (file.language() != "ptx" && file.language() != "sass") continue;
      const std::string stem =
          absl::StrCat(code.stem().string(), ".", DataTypeText(event.compiled().data_type()));
      const std::string extension = absl::StrCat(".", file.language());
      const int number = ++written[stem + extension];
      const std::string name =
          absl::StrCat(stem, number == 1 ? "" : absl::StrCat("-", number), extension);
      RETURN_IF_ERROR(WriteOutput(folder / name, file.text()));
    }
  }
  return absl::OkStatus();
}

// A push after its call has ended.
struct Pushed {
  int failed = 0;  // if it came to no call: the exit status; the reason was printed
  int signal = 0;  // that ended it
  PushReport report = {};
};

class Pusher {
 public:
  // `globals` and `options` outlive it.
  Pusher(const Globals& globals, const PushOptions& options)
      : globals_(globals), options_(options), client_(globals.server, ClientOptionsOf(globals)) {}

  // Reads the files and pushes them, until `cancellation` or a signal ends the call. Prints events
  // as they come.
  Pushed Push(client::Cancellation* cancellation);
  // Prints the rest, writes the files, and returns the exit status.
  int Finish(const Pushed& pushed);

 private:
  // Queue positions are events of the push.
  static client::ClientOptions ClientOptionsOf(const Globals& globals) {
    client::ClientOptions options = OptionsOf(globals);
    options.queued = nullptr;
    return options;
  }
  int FailToRead(const absl::Status& status) const;

  const Globals& globals_;
  const PushOptions& options_;
  client::Client client_;
};

int Pusher::FailToRead(const absl::Status& status) const {
  const int exit_status = UsageError(status);
  const bool lacks_manifest = absl::IsFailedPrecondition(status);
  if (lacks_manifest && !globals_.json) PrintExample("The shortest manifest:", kShortestManifest);
  return exit_status;
}

Pushed Pusher::Push(client::Cancellation* cancellation) {
  const absl::StatusOr<PushSource> source = ReadPushSource(options_.file, options_.manifest);
  if (!source.ok()) return {.failed = FailToRead(source.status())};
  client::PushCall call = MakeCall(options_, *source);
  if (!options_.shapes.empty()) {
    const auto kernels = ListKernelsWith({source->op}, &client_, call.timeout);
    if (!kernels.ok()) return {.failed = Refused(kernels.status())};
    auto problems = MakeProblems(options_, *source, *kernels);
    if (!problems.ok()) return {.failed = UsageError(problems.status())};
    call.problems = *std::move(problems);
  }
  Pushed pushed{.report = {.file = options_.file,
                           .name = source->name,
                           .op = source->op,
                           .server = globals_.server}};
  PushReport& report = pushed.report;
  if (!globals_.json) PrintText(absl::StrCat(Printable(PushTitle(report)), "\n"));
  const auto show = [&](const client::PushEvent& event) {
    report.events.push_back(event);
    if (globals_.json) return absl::OkStatus();
    PrintText(EventText(event));
    FlushOutput();
    return absl::OkStatus();
  };
  const Interrupt interrupt([&](int) { cancellation->Cancel(); });
  const Progress progress(absl::StrCat("pushing ", options_.file));
  report.status = client_.Push(call, {.event = show, .cancellation = cancellation}).status();
  pushed.signal = interrupt.signal();
  return pushed;
}

int Pusher::Finish(const Pushed& pushed) {
  if (pushed.failed != 0) return pushed.failed;
  const PushReport& report = pushed.report;
  const bool ended_by_signal = pushed.signal != 0 && !report.status.ok();
  const int exit_status = ended_by_signal      ? kExitSignal + pushed.signal
                          : report.status.ok() ? ExitStatusOf(*report.verdict())
                                               : kExitRefused;
  absl::Status written;
  if (!report.events.empty()) {
    if (options_.wants_files()) written.Update(WriteFiles(options_, report));
    if (!options_.html.empty()) written.Update(WriteOutput(options_.html, PushPage(report)));
    if (globals_.json) PrintJson(ToJson(report, exit_status));
  }
  FlushOutput();
  if (!written.ok()) return Fail(written, kExitUsage);
  if (ended_by_signal)
    return Fail(absl::CancelledError(absl::StrCat("interrupted by signal ", pushed.signal)),
                exit_status);
  return report.status.ok() ? exit_status : Refused(report.status);
}

// Pushes until a signal comes; returns the exit status of the last push that was not cut short.
int PushOnSave(Pusher* pusher, FileWatch* watch, const std::string& file) {
  std::optional<int> exit_status;
  const auto last = [&](int signal) { return exit_status.value_or(kExitSignal + signal); };
  while (true) {
    client::Cancellation cancellation;
    watch->Begin(&cancellation);
    const Pushed pushed = pusher->Push(&cancellation);
    const bool saved = watch->End();
    const bool cut_short = absl::IsCancelled(pushed.report.status) && pushed.failed == 0;
    if (pushed.signal != 0 && cut_short) return last(pushed.signal);
    if (!(saved && cut_short)) exit_status = pusher->Finish(pushed);
    if (pushed.signal != 0) return last(pushed.signal);
    const Interrupt interrupt([&](int) { watch->Stop(); });
    if (!saved) PrintNote(absl::StrCat("watching ", file, "; Ctrl-C ends"));
    if (!watch->AwaitSave()) return last(interrupt.signal());
    PrintNote(absl::StrCat(file, " was saved"));
  }
}

int Run(const Globals& globals, const PushOptions& options) {
  if (const absl::Status status = CheckOptions(options); !status.ok()) return UsageError(status);
  Pusher pusher(globals, options);
  if (!options.watch) {
    client::Cancellation cancellation;
    return pusher.Finish(pusher.Push(&cancellation));
  }
  std::vector<std::string> files = {options.file};
  if (!options.manifest.empty()) files.push_back(options.manifest);
  const auto watch = FileWatch::Start(files);
  if (!watch.ok()) return UsageError(watch.status());
  return PushOnSave(&pusher, watch->get(), options.file);
}

}  // namespace

Command AddPushCommand(const Arguments& root, const Globals& globals) {
  return MakeCommand<PushOptions>(
      root.AddSubcommand("push", "Have the server check and time a kernel of yours"), globals, Run);
}

}  // namespace warpcall::cli
