#include "server/self_test/child.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>
#include <utility>

#include "kernels/compiled/program.h"
#include "kernels/cpu/thread_pool.h"
#include "proto/common/status_macros.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/process/fatal_signals.h"
#include "server/self_test/rate.h"
#include "server/self_test/trial_runner.h"

namespace warpcall::self_test {
namespace {

// Larger problems add nothing to a rate, and pinning memory for a GPU takes time.
constexpr int64_t kCpuElementsMax = int64_t{1} << 18;
constexpr int64_t kGpuElementsMax = int64_t{1} << 22;
// Libraries search again for each size.
constexpr int64_t kCpuElementsStep = 4;
constexpr int64_t kGpuElementsStep = 64;
constexpr uint8_t kSmallNumber =
    0x3C;  // in every byte: 0.0115 in float32 and bfloat16, 1.06 in float16

int64_t ProcessCpuNs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The data of the signal handler; constant while the handler runs.
struct Crash {
  const process::Channel* channel;
  Report report;
};
Crash crash;

void ReportCrash(int signal) {
  crash.report.signal = signal;
  // A failed send changes nothing: the process ends either way.
  crash.channel->TrySend("", process::Channel::BytesOf(crash.report));
  _exit(128 + signal);
}

void CatchCrashes(const process::Channel& channel) {
  crash = {&channel, {}};
  crash.report.kind = Report::Kind::kCrashed;
  process::CatchFatalSignals(ReportCrash);
}

class Tester {
 public:
  Tester(const process::Channel& channel, const Trials& trials, TrialRunner* runner)
      : channel_(channel),
        trials_(trials),
        runner_(*runner),
        check_(*trials.registry, trials.device->properties(),
               {.depth = trials.depth,
                .run = [runner](const Implementation& row, const Problem& problem,
                                const Operands& host) { return runner->Run(row, problem, host); },
                .pool = &pool_}) {}

  absl::Status Try(const Row& row) {
    Report report;
    report.row = row.id;
    report.kind = Report::Kind::kStarted;
    crash.report.row = row.id;
    RETURN_IF_ERROR(channel_.SendStruct(report));
    const int64_t start_ns = MonotonicNs();
    const CheckResult result = check_.Check(row);
    report.kind = result.status.ok() ? Report::Kind::kPassed : Report::Kind::kFailed;
    for (const DataType type : result.data_types)
      report.data_types |= 1u << static_cast<uint32_t>(type);
    if (result.status.ok())
      AddRate(row, result.data_types.front(), &report);
    else
      report.cause = CauseOf(row.implementation.family, result.status);
    SetText(result.status.message(), &report);
    report.ns = MonotonicNs() - start_ns;
    RETURN_IF_ERROR(channel_.SendStruct(report));
    crash.report.row = -1;
    if (!trials_.device->healthy()) return absl::UnavailableError("the device was lost");
    return absl::OkStatus();
  }

 private:
  // Rows that do not take such a problem have none.
  void AddRate(const Row& row, DataType type, Report* report) {
    const Op& op = *trials_.registry->kernels()[static_cast<size_t>(row.kernel)].op;
    const bool cpu = trials_.device->properties().kind == DeviceKind::kCpu;
    RatePlan plan{.op = &op,
                  .sized = op.cases().sized,
                  .data_type = type,
                  .elements_max = cpu ? kCpuElementsMax : kGpuElementsMax,
                  .elements_step = cpu ? kCpuElementsStep : kGpuElementsStep};
    if (memory_bytes_per_ns_ > 0) plan.memory_bytes_per_ns = memory_bytes_per_ns_;
    if (plan.sized == nullptr) return;
    const absl::StatusOr<ServiceRate> rate = MeasureRate(
        plan, [&](const Problem& problem) { return Time(row.implementation, problem); });
    if (!rate.ok()) return;
    report->has_rate = 1;
    report->rate = *rate;
    if (op.independence == Independence::kElements)
      memory_bytes_per_ns_ = std::max(memory_bytes_per_ns_, rate->bytes_per_ns);
  }

  absl::StatusOr<StreamTimes> Time(const Implementation& row, const Problem& problem) {
    RETURN_IF_ERROR(row.supports(problem, trials_.device->properties()));
    const inspect::OperandLayout layout(problem);
    if (staging_.bytes() < static_cast<size_t>(layout.bytes)) {
      staging_ = Buffer();
      ASSIGN_OR_RETURN(staging_,
                       trials_.device->AllocateStaging(static_cast<size_t>(layout.bytes)));
      std::memset(staging_.data(), kSmallNumber, staging_.bytes());
    }
    const int64_t cpu_start_ns = ProcessCpuNs();
    RETURN_IF_ERROR(runner_.Run(row, problem, layout.At(static_cast<char*>(staging_.data()))));
    StreamTimes times = runner_.times();
    // On a busy machine the wall clock includes other programs' time.
    if (trials_.device->properties().kind == DeviceKind::kCpu)
      times.kernel_ns = std::min(times.kernel_ns, ProcessCpuNs() - cpu_start_ns);
    return times;
  }

  const process::Channel& channel_;
  const Trials& trials_;
  TrialRunner& runner_;
  cpu::ThreadPool pool_{std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  SelfCheck check_;
  Buffer staging_;
  double memory_bytes_per_ns_ = 0;  // the best so far
};

bool IsSound(const Report& report) {
  const bool with_reason = report.text[0] != '\0';
  switch (report.kind) {
    case Report::Kind::kStarted:
    case Report::Kind::kCrashed:
      return true;
    case Report::Kind::kPassed:
      return report.ns >= 0;
    case Report::Kind::kFailed:
      return report.ns >= 0 && with_reason;
    case Report::Kind::kNoDevice:
      return with_reason;
  }
  return false;  // a kind that there is not
}

}  // namespace

void SetText(absl::string_view text, Report* report) {
  const size_t bytes = std::min(text.size(), sizeof(report->text) - 1);
  text.copy(report->text, bytes);
  report->text[bytes] = '\0';
}

absl::StatusOr<Report> ReceiveReport(const process::Channel& channel) {
  absl::StatusOr<Report> report = channel.ReceiveStruct<Report>();
  if (absl::IsUnavailable(report.status())) return absl::UnavailableError("its process ended");
  if (report.ok()) report->text[sizeof(report->text) - 1] = '\0';
  if (!report.ok() || !IsSound(*report)) return absl::UnavailableError("its process sent nonsense");
  return report;
}

Unavailability::Cause CauseOf(Family family, const absl::Status& status) {
  if (compiled::IsCompileError(status)) return Unavailability::Cause::kCompile;
  if (!absl::IsUnimplemented(status)) return Unavailability::Cause::kSelfTest;
  switch (family) {
    case Family::kLibrary:
    case Family::kTriton:
    case Family::kCompiled:
    case Family::kCuda:
      return Unavailability::Cause::kLibrary;
    default:
      return Unavailability::Cause::kSelfTest;
  }
}

void ReportNoDevice(const process::Channel& channel, const absl::Status& status) {
  Report report;
  report.kind = Report::Kind::kNoDevice;
  SetText(status.message(), &report);
  channel.SendStruct(report).IgnoreError();
}

absl::Status RunTrials(const process::Channel& channel, const Trials& trials) {
  const absl::StatusOr<std::unique_ptr<TrialRunner>> runner = TrialRunner::Create(trials.device);
  if (!runner.ok()) {
    ReportNoDevice(channel, runner.status());
    return runner.status();
  }
  CatchCrashes(channel);
  Tester tester(channel, trials, runner->get());
  for (const int id : trials.rows)
    RETURN_IF_ERROR(tester.Try(trials.registry->rows()[static_cast<size_t>(id)]));
  return absl::OkStatus();
}

}  // namespace warpcall::self_test
