#include "server/judge/judge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/compiled/nvrtc.h"
#include "kernels/compiled/program.h"
#include "kernels/compiled/sha256.h"
#include "kernels/cpu/thread_pool.h"
#include "proto/common/human_figures.h"
#include "proto/common/status_macros.h"
#include "server/engine/finding.h"
#include "server/inspect/describe.h"
#include "server/inspect/disassembly.h"
#include "server/judge/arguments.h"
#include "server/judge/launch_watch.h"
#include "server/judge/messages.h"
#include "server/judge/problems.h"
#include "server/judge/time_trial.h"
#include "server/judge/trial.h"

namespace warpcall::judge {
namespace {

// Niceness of the threads that compute what is right: below all threads that serve requests.
constexpr int kHelpersNice = 19;
constexpr size_t kDigestBytes = 16;
// A compiler's log is the longest reason.
constexpr size_t kReasonBytesMax = size_t{64} << 10;

struct Outcome {
  Finding finding = Finding::kPassed;
  std::string reason;

  bool ok() const { return finding == Finding::kPassed; }
};

Outcome Fail(Finding finding, absl::string_view reason) { return {finding, std::string(reason)}; }

// Warnings and notes may come before it.
absl::string_view FirstError(absl::string_view log) {
  const size_t error = log.find("error");
  const size_t before = error == absl::string_view::npos ? error : log.rfind('\n', error);
  const absl::string_view rest = before == absl::string_view::npos ? log : log.substr(before + 1);
  return rest.substr(0, rest.find('\n'));
}

Outcome CompilerOutcome(const absl::Status& status) {
  // The log is told before.
  if (compiled::IsCompileError(status))
    return Fail(Finding::kCompileError, FirstError(status.message()));
  if (absl::IsUnimplemented(status)) return Fail(Finding::kNotSupported, status.message());
  return Fail(Finding::kInternalError, status.message());
}

Outcome LoaderOutcome(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return Fail(Finding::kInvalidManifest, status.message());
  if (absl::IsResourceExhausted(status)) return Fail(Finding::kNotSupported, status.message());
  return Fail(Finding::kRuntimeError, status.message());
}

class Judgement {
 public:
  Judgement(const JudgeSite& site, const Candidate& candidate)
      : site_(site),
        candidate_(candidate),
        manifest_(*candidate.manifest),
        digest_(DigestOf(manifest_, candidate.code)) {}

  absl::StatusOr<v1::PushVerdict> Run() {
    const Outcome outcome = Judge();
    if (outcome.finding == Finding::kTimeout && candidate_.limit_ns == 0)
      return absl::DeadlineExceededError(outcome.reason);
    return VerdictOf(outcome);
  }

 private:
  // A problem, and what it takes to run it.
  struct Task {
    Problem problem;
    manifest::KernelLaunches launches;
    bool is_timed = false;
  };

  Outcome Judge() {
    for (Outcome (Judgement::*stage)() :
         {&Judgement::FindProblems, &Judgement::Compile, &Judgement::Check, &Judgement::Time})
      if (Outcome outcome = (this->*stage)(); !outcome.ok()) return outcome;
    return {};
  }

  Outcome FindProblems() {
    std::vector<Problem> problems = candidate_.problems;
    size_t timed = problems.size();
    if (problems.empty()) {
      absl::StatusOr<std::vector<Problem>> drawn =
          DrawProblems(manifest_, site_.device, candidate_.seed);
      if (absl::IsUnimplemented(drawn.status()))
        return Fail(Finding::kNotSupported, drawn.status().message());
      if (!drawn.ok()) return Fail(Finding::kInvalidManifest, drawn.status().message());
      problems = *std::move(drawn);
      timed = TimedOf(problems);
    }
    for (size_t i = 0; i < problems.size(); ++i) {
      const absl::Status taken = CheckTaken(manifest_, problems[i], site_.device);
      if (!taken.ok()) return Fail(Finding::kNotSupported, taken.message());
      absl::StatusOr<manifest::KernelLaunches> launches =
          LaunchesFor(manifest_, problems[i], site_.device);
      if (!launches.ok()) return Fail(Finding::kInvalidManifest, launches.status().message());
      tasks_.push_back({std::move(problems[i]), *std::move(launches), i < timed});
    }
    return {};
  }

  // The examples are timed. Where there are none it is the largest problem, which becomes the
  // first.
  size_t TimedOf(std::vector<Problem>& problems) const {
    if (!manifest_.examples.empty()) return std::min(manifest_.examples.size(), kTimedMax);
    std::iter_swap(problems.begin(),
                   absl::c_max_element(problems, [&](const auto& a, const auto& b) {
                     return manifest_.op->work(a).bytes < manifest_.op->work(b).bytes;
                   }));
    return 1;
  }

  struct Compiled {
    absl::StatusOr<compiled::CudaCode> code = absl::UnknownError("not compiled");
    int64_t ns = 0;
  };

  // Compiles the code once for each data type, all at the same time.
  Outcome Compile() {
    std::vector<const Task*> first_of_type;
    for (const Task& task : tasks_)
      if (absl::c_none_of(first_of_type,
                          [&](const Task* known) { return TypeOf(*known) == TypeOf(task); }))
        first_of_type.push_back(&task);
    std::vector<Compiled> results(first_of_type.size());
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < results.size(); ++i)
        threads.emplace_back([&, i] { results[i] = CompileFor(TypeOf(*first_of_type[i])); });
    }
    for (const Compiled& each : results) compile_ns_ = std::max(compile_ns_, each.ns);
    for (size_t i = 0; i < results.size(); ++i)
      if (Outcome outcome = TakeCode(*first_of_type[i], results[i]); !outcome.ok()) return outcome;
    Outcome opened = Open();
    for (size_t i = 0; i < results.size(); ++i)
      if (Outcome told = TellCode(*first_of_type[i], results[i]); !told.ok()) return told;
    return opened;
  }

  Outcome Open() {
    if (site_.open == nullptr)
      return Fail(Finding::kNotSupported,
                  "it compiles; no GPU of this server takes pushes, so it was not run");
    absl::StatusOr<RunSite> opened = site_.open();
    if (!opened.ok()) return Fail(Finding::kInternalError, opened.status().message());
    run_ = *std::move(opened);
    absl::StatusOr<std::unique_ptr<Stream>> stream = run_.device->CreateStream();
    absl::Status ready = stream.status();
    if (ready.ok()) ready = (*stream)->BindThread();
    if (!ready.ok()) return Fail(Finding::kInternalError, ready.message());
    stream_ = *std::move(stream);
    return {};
  }

  static DataType TypeOf(const Task& task) { return task.problem.inputs[0].data_type; }

  // Any thread may call it.
  Compiled CompileFor(DataType type) const {
    const int64_t start_ns = site_.clock();
    Compiled compiled;
    compiled.code = site_.compile({.name = manifest_.name,
                                   .source = candidate_.code,
                                   .options = manifest_.options,
                                   .entries = Entries(),
                                   .data_type = type,
                                   .arch = compiled::TargetName(site_.device.architecture),
                                   .with_ptx = true},  // has the kernels' parameters
                                  candidate_.deadline_ns);
    compiled.ns = site_.clock() - start_ns;
    return compiled;
  }

  // Tells what is wrong with the code, if anything is.
  Outcome TakeCode(const Task& task, Compiled& compiled) {
    const absl::Status& status = compiled.code.status();
    if (absl::IsDeadlineExceeded(status)) return Late(status.message());
    if (compiled::IsCompileError(status)) site_.tell(EventOf(task, compiled));
    if (!status.ok()) {
      Outcome outcome = CompilerOutcome(status);
      if (outcome.finding == Finding::kNotSupported && site_.open == nullptr)
        absl::StrAppend(&outcome.reason, "; no GPU of this server takes pushes either");
      return outcome;
    }
    const absl::Status arguments = CheckArguments(manifest_, *compiled.code);
    if (!candidate_.with_files) compiled.code->ptx.clear();
    if (!arguments.ok()) {
      site_.tell(EventOf(task, compiled));
      return Fail(Finding::kInvalidManifest, arguments.message());
    }
    codes_.emplace(TypeOf(task), *compiled.code);
    return {};
  }

  // Tells what the code takes, as far as that is known.
  Outcome TellCode(const Task& task, const Compiled& compiled) {
    v1::PushEvent event = EventOf(task, compiled);
    if (stream_ != nullptr)
      if (Outcome outcome = DescribeCode(task, event.mutable_compiled()); !outcome.ok())
        return outcome;
    site_.tell(event);
    return {};
  }

  v1::PushEvent EventOf(const Task& task, const Compiled& compiled) const {
    v1::PushEvent event =
        ToEvent(compiled.code, TypeOf(task), compiled::TargetName(site_.device.architecture));
    event.mutable_compiled()->set_digest(digest_);
    event.mutable_compiled()->set_compile_ns(compiled.ns);
    return event;
  }

  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const manifest::KernelEntry& entry : manifest_.entries) names.push_back(entry.name);
    return names;
  }

  Outcome DescribeCode(const Task& task, v1::PushCompiled* compiled) {
    PlanPtr plan;
    if (Outcome outcome = Load(task, &plan); !outcome.ok()) return outcome;
    if (!plan->shape().ok()) return LoaderOutcome(plan->shape().status());
    SetShape(*plan->shape(), compiled);
    if (candidate_.with_files)
      for (SourceFile& file : inspect::Disassemble(plan->Code(), {}))
        *compiled->add_files() = inspect::ToProto(std::move(file));
    return {};
  }

  // Loads the code afresh: what it has kept is gone.
  Outcome Load(const Task& task, PlanPtr* plan) {
    absl::StatusOr<PlanPtr> made = run_.load(codes_.at(task.problem.inputs[0].data_type),
                                             task.launches, manifest_.scratch_zero);
    if (!made.ok()) return LoaderOutcome(made.status());
    *plan = *std::move(made);
    return {};
  }

  Outcome Check() {
    for (const Task& task : tasks_)
      if (Outcome outcome = CheckOne(task); !outcome.ok()) return outcome;
    return {};
  }

  Outcome CheckOne(const Task& task) {
    if (IsPastDeadline()) return LateIn("checking");
    PlanPtr plan;
    if (Outcome outcome = Load(task, &plan); !outcome.ok()) return outcome;
    const PlanPtr ours = OursFor(task.problem);
    Trial trial({.device = run_.device,
                 .stream = stream_.get(),
                 .pool = &pool_,
                 .secret = NextSecret(),
                 .watch = &watch_,
                 .launch_time_max = site_.launch_time_max},
                {.op = manifest_.op,
                 .problem = &task.problem,
                 .plan = plan,
                 .ours = ours,
                 .finite_inputs = manifest_.finite_inputs,
                 .deterministic = manifest_.deterministic});
    const absl::StatusOr<TrialResult> result = trial.Run();
    if (!result.ok()) return Fail(Finding::kInternalError, result.status().message());
    site_.tell(ToEvent(task.problem, *manifest_.op, *result));
    if (result->finding == Finding::kPassed) return {};
    return Fail(result->finding, absl::StrCat("for ", InputsToString(task.problem), ", ",
                                              result->fill, " inputs: ", result->detail));
  }

  // The plan that "auto" takes; null where there is none, or where it would have to be searched.
  PlanPtr OursFor(const Problem& problem) const {
    const absl::StatusOr<const Kernel*> kernel = site_.registry->Find(manifest_.op->name);
    if (!kernel.ok()) return nullptr;
    const absl::StatusOr<const Row*> row =
        site_.registry->Select(**kernel, "auto", problem, run_.device->properties());
    if (!row.ok() || (*row)->implementation.slow_to_plan) return nullptr;
    const absl::StatusOr<PlanPtr> plan = (*row)->implementation.plan(
        problem, {.device = &run_.device->properties(), .libraries = stream_->libraries()});
    return plan.ok() ? *plan : nullptr;
  }

  Outcome Time() {
    if (candidate_.check_only) return {};
    for (const Task& task : tasks_) {
      if (!task.is_timed) continue;
      if (IsPastDeadline()) return LateIn("timing");
      if (Outcome outcome = TimeOne(task); !outcome.ok()) return outcome;
    }
    return {};
  }

  Outcome TimeOne(const Task& task) {
    TimeResult timed;
    // Too fast to be true is said only where a second series says so too.
    for (int series = 0; series < 2; ++series) {
      PlanPtr plan;
      if (Outcome outcome = Load(task, &plan); !outcome.ok()) return outcome;
      watch_.Begin(kTimeTrialMax);
      absl::StatusOr<TimeResult> result = RunTimeTrial(
          {.registry = site_.registry,
           .device = run_.device,
           .surroundings = site_.surroundings,
           .conditions = run_.conditions,
           .multiply_adds = site_.multiply_adds,
           .clock = site_.clock,
           .pool = &pool_,
           .watch = &watch_},
          {.manifest = &manifest_,
           .problem = &task.problem,
           .plan = plan,
           .iterations = candidate_.iterations == 0 ? kIterations : candidate_.iterations,
           .compare_with = candidate_.compare_with,
           .secret = NextSecret(),
           .deadline_ns = candidate_.deadline_ns});
      watch_.End();
      if (!result.ok())
        return Fail(run_.device->healthy() ? Finding::kInternalError : Finding::kRuntimeError,
                    result.status().message());
      timed = *std::move(result);
      // A row that has no times by the deadline has an error.
      if (timed.finding == Finding::kRuntimeError && run_.device->healthy() && IsPastDeadline())
        return LateIn("timing");
      if (timed.finding != Finding::kBelowFloor) break;
    }
    stamp_ = timed.stamp;
    site_.tell(ToEvent(task.problem, *manifest_.op, timed));
    if (timed.speedup > 0) log_speedups_.push_back(std::log(timed.speedup));
    if (timed.finding == Finding::kPassed) return {};
    return Fail(timed.finding,
                absl::StrCat("for ", InputsToString(task.problem), ": ", timed.detail));
  }

  bool IsPastDeadline() const { return site_.clock() >= candidate_.deadline_ns; }
  // `stopped`: what was under way, and how long compiling took.
  Outcome Late(absl::string_view stopped) const {
    if (candidate_.limit_ns == 0) return Fail(Finding::kTimeout, stopped);
    return Fail(Finding::kTimeout, absl::StrCat(stopped, "; the server judges a push for at most ",
                                                HumanTime(candidate_.limit_ns)));
  }
  Outcome LateIn(absl::string_view stage) const {
    return Late(absl::StrCat(stage, " was stopped; compiling took ", HumanTime(compile_ns_)));
  }

  uint64_t NextSecret() { return random_(); }

  void GiveUp() {
    const std::string limit = HumanTime(absl::ToDoubleNanoseconds(site_.launch_time_max));
    site_.give_up(
        VerdictOf(Fail(Finding::kTimeout, absl::StrCat("it does not end; a launch may take ", limit,
                                                       " (push_run_seconds)"))));
  }

  v1::PushVerdict VerdictOf(const Outcome& outcome) const {
    v1::PushVerdict verdict;
    verdict.set_status(FindingName(outcome.finding));
    verdict.set_reason(compiled::CleanText(outcome.reason, kReasonBytesMax));
    verdict.set_name(absl::StrCat("push:", manifest_.name, "@", digest_));
    verdict.set_digest(digest_);
    verdict.set_seed(candidate_.seed);
    *verdict.mutable_stamp() = stamp_;
    if (verdict.stamp().device_description().empty())
      verdict.mutable_stamp()->set_device_description(site_.device.description);
    verdict.set_finite_only(manifest_.finite_inputs);
    verdict.set_deterministic(outcome.ok() && manifest_.deterministic);
    double sum = 0;
    for (const double each : log_speedups_) sum += each;
    if (!log_speedups_.empty() && outcome.ok())
      verdict.set_speedup(std::exp(sum / static_cast<double>(log_speedups_.size())));
    return verdict;
  }

  static constexpr size_t kTimedMax = 4;
  static constexpr absl::Duration kTimeTrialMax = absl::Seconds(20);

  const JudgeSite& site_;
  const Candidate& candidate_;
  const manifest::KernelManifest& manifest_;
  const std::string digest_;
  std::mt19937_64 random_{candidate_.seed};
  cpu::ThreadPool pool_{std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
                        kHelpersNice};
  RunSite run_;  // once it is open, as the next one
  std::unique_ptr<Stream> stream_;
  std::vector<Task> tasks_;
  std::map<DataType, compiled::CudaCode> codes_;
  int64_t compile_ns_ = 0;  // of the data type that took longest
  std::vector<double> log_speedups_;
  v1::RunStamp stamp_;
  LaunchWatch watch_{[this] { GiveUp(); }};  // last: its thread reads the above
};

}  // namespace

std::string DigestOf(const manifest::KernelManifest& manifest, const std::string& code) {
  const compiled::Sha256 sha256 = compiled::Sha256Of(absl::StrCat(manifest.canonical, "\n", code));
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(sha256.data()), kDigestBytes));
}

DeviceProperties HopperProperties() {
  DeviceProperties hopper;
  hopper.name = "cuda";
  hopper.kind = DeviceKind::kCuda;
  hopper.description = "no GPU, compiled for an H100";
  hopper.multiprocessors = 132;
  hopper.threads_per_multiprocessor = 2048;
  hopper.shared_memory_per_block_bytes = 232'448;
  hopper.architecture = 90;
  return hopper;
}

v1::PushVerdict VerdictOnManifest(const std::string& reason) {
  v1::PushVerdict verdict;
  verdict.set_status(FindingName(Finding::kInvalidManifest));
  verdict.set_reason(compiled::CleanText(reason, kReasonBytesMax));
  return verdict;
}

absl::StatusOr<v1::PushVerdict> JudgeCandidate(const JudgeSite& site, const Candidate& candidate) {
  return Judgement(site, candidate).Run();
}

}  // namespace warpcall::judge
