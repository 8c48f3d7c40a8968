#include "server/self_test/child.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
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
#include "server/self_test/rate.h"
#include "server/self_test/report.h"
#include "server/self_test/trial_runner.h"

namespace warpcall::self_test {
namespace {

// Larger problems tell no more of a rate, and pinning memory for a GPU takes its time.
constexpr int64_t kCpuElementsMax = int64_t{1} << 18;
constexpr int64_t kGpuElementsMax = int64_t{1} << 22;
// Libraries look for their best way anew for each size.
constexpr int64_t kCpuElementsStep = 4;
constexpr int64_t kGpuElementsStep = 64;
constexpr uint8_t kSmallNumber =
    0x3C;  // in every byte: 0.0115 in float32 and bfloat16, 1.06 in float16

constexpr int kFatal[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTRAP};

int64_t ProcessCpuNs() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// What a signal's handler needs, and nothing that could change while it runs.
struct Crash {
  int socket;
  Report report;
};
Crash crash;

void ReportCrash(int signal) {
  crash.report.signal = signal;
  // What becomes of it makes no difference any more.
  [[maybe_unused]] const ssize_t sent =
      send(crash.socket, &crash.report, sizeof(crash.report), MSG_NOSIGNAL);
  _exit(128 + signal);
}

// On a stack of its own, for rows that overflow theirs.
void CatchCrashes(int socket) {
  static char stack[64 << 10];
  crash = {socket, {}};
  crash.report.kind = Report::Kind::kCrashed;
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof(stack);
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = ReportCrash;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : kFatal) sigaction(signal, &action, nullptr);
}

class Child {
 public:
  Child(int socket, const Trials& trials, TrialRunner* runner)
      : socket_(socket),
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
    report.pid = getpid();
    report.kind = Report::Kind::kStarted;
    crash.report.row = row.id;
    RETURN_IF_ERROR(Send(socket_, report));
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
    RETURN_IF_ERROR(Send(socket_, report));
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
    // On a busy machine the clock counts others' time, too.
    if (trials_.device->properties().kind == DeviceKind::kCpu)
      times.kernel_ns = std::min(times.kernel_ns, ProcessCpuNs() - cpu_start_ns);
    return times;
  }

  const int socket_;
  const Trials& trials_;
  TrialRunner& runner_;
  cpu::ThreadPool pool_{std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
  SelfCheck check_;
  Buffer staging_;
  double memory_bytes_per_ns_ = 0;  // the best so far
};

}  // namespace

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

void ReportNoDevice(int socket, const absl::Status& status) {
  Report report;
  report.kind = Report::Kind::kNoDevice;
  SetText(status.message(), &report);
  Send(socket, report).IgnoreError();
}

absl::Status RunTrials(int socket, const Trials& trials) {
  const absl::StatusOr<std::unique_ptr<TrialRunner>> runner = TrialRunner::Create(trials.device);
  if (!runner.ok()) {
    ReportNoDevice(socket, runner.status());
    return runner.status();
  }
  CatchCrashes(socket);
  Child child(socket, trials, runner->get());
  for (const int id : trials.rows)
    RETURN_IF_ERROR(child.Try(trials.registry->rows()[static_cast<size_t>(id)]));
  return absl::OkStatus();
}

}  // namespace warpcall::self_test
