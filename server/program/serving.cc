#include "server/program/serving.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/common/steady_wait.h"
#include "server/engine/clock.h"
#include "server/engine/engine.h"
#include "server/inspect/inspector.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/system/service_manager.h"
#include "server/system/signals.h"

namespace warpcall {
namespace {

// Time after the drain to send the last answers, and again for calls to end with their connections.
constexpr absl::Duration kShutdownTimeout = absl::Milliseconds(200);
// Time after the drain for stopped work to notice (about 50 ms) and for its calls to be answered.
constexpr absl::Duration kEndTimeout = absl::Seconds(2);

// Exit statuses, as README and --help say; 2 is ParseConfig's.
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kNotDrained = 3;

// Has files read again. A unit of Type=notify is reloading until they are.
void ReadAgain(const Serving& serving) {
  NotifyServiceManager(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", MonotonicNs() / 1000));
  serving.reloader->ReadAgain([lifecycle = serving.lifecycle] {
    if (lifecycle->phase() == ServerPhase::kServing) NotifyServiceManager("READY=1");
  });
}

// The first of `signals` that comes. Until then SIGHUP has files read again.
int AwaitSignal(const sigset_t& signals, const Serving& serving) {
  sigset_t awaited = signals;
  sigaddset(&awaited, SIGHUP);
  constexpr timespec kLook = {.tv_sec = 1, .tv_nsec = 0};
  for (;;) {
    const int number = sigtimedwait(&awaited, nullptr, &kLook);
    if (number == SIGHUP)
      ReadAgain(serving);
    else if (number > 0)
      return number;
    serving.reloader->ReportHanging();
  }
}

// Returns true if one of `signals` is pending.
bool AnyPending(const sigset_t& signals) {
  sigset_t pending, both;
  sigpending(&pending);
  sigandset(&both, &pending, &signals);
  return sigisemptyset(&both) == 0;
}

// Waits `seconds`; a second signal ends the wait early.
void AwaitSignalFor(const sigset_t& signals, double seconds) {
  const timespec timeout = absl::ToTimespec(absl::Seconds(seconds));
  sigtimedwait(&signals, nullptr, &timeout);
}

// Reports to everybody who waits that the server serves.
void ReportServing(const Serving& serving) {
  serving.lifecycle->Enter(ServerPhase::kServing);
  const std::string addresses = absl::StrJoin(serving.server->addresses(), ",");
  const std::string& metrics = serving.http->address();
  const double seconds = serving.lifecycle->seconds_since_start();
  Log(LogLevel::kInfo, "serving", {{"listen", addresses}, {"metrics_listen", metrics}});
  if (const auto ready = serving.lifecycle->Ready(); ready.ok())
    Log(LogLevel::kInfo, absl::StrFormat("ready after %.1f s", seconds), {{"seconds", seconds}});
  else
    Log(LogLevel::kWarning, absl::StrCat("not ready: ", ready.status().message()));
  NotifyServiceManager(absl::StrCat("READY=1\nSTATUS=serving on ", addresses));
  Say(STDOUT_FILENO, LogLevel::kInfo,
      absl::StrCat("serving on ", addresses, ", metrics on ", metrics),
      {{"listen", addresses}, {"metrics_listen", metrics}});
}

// The outcome of the calls that were open when the drain began.
struct Drained {
  int64_t finished = 0;
  int status = kDone;
  bool ended = true;  // false: a call still uses objects that the process would destroy
};

// Closes all connections when the last answers have left. Data that a client sends to a closed
// connection would reset it. Calls that come until then are refused with the reason. Returns true
// if no call is left.
bool CloseConnections(GrpcServer* server) {
  absl::SleepFor(kShutdownTimeout);
  server->Shutdown();
  // Calls refused meanwhile may have timers, which gRPC does not wait for.
  return server->AwaitQuiet(kShutdownTimeout);
}

// Ends the calls left after the drain with UNAVAILABLE and subtracts them from `drained`.
void EndUnfinished(const ExecuteDeps& deps, GrpcServer* server, Drained* drained) {
  const Engine::Unfinished left = deps.engine->EndAll();
  const int64_t inspections = deps.inspector->EndAll();
  const int64_t streams = server->EndStreams(DrainOverError());
  Log(LogLevel::kError, "drain_seconds are over: what is left ends with UNAVAILABLE",
      {{"waiting", left.waiting},
       {"running", left.running},
       {"streams", streams},
       {"inspections", inspections}});
  drained->status = kNotDrained;
  drained->finished =
      std::max<int64_t>(0, drained->finished - left.waiting - left.running - streams - inspections);
  const SteadyTime give_up = SteadyAfter(kEndTimeout);
  const bool idle = deps.engine->AwaitIdle(UntilSteady(give_up));
  server->AwaitQuiet(UntilSteady(give_up));
  drained->ended = idle && CloseConnections(server);
  if (drained->ended) return;
  for (const Scheduler::Running& job : deps.engine->RunningJobs())
    Log(LogLevel::kError, "a job does not stop; it ends with the process",
        {{"job", job.id},
         {"kernel", deps.registry->kernels()[static_cast<size_t>(job.row->kernel)].op->name},
         {"implementation", PinnedName(job.row->implementation)}});
}

// Refuses new requests and finishes what was accepted.
Drained Drain(const Config& config, const ExecuteDeps& deps, GrpcServer* server) {
  deps.engine->BeginDrain();
  deps.inspector->BeginDrain();
  Drained drained = {.finished = deps.calls.open.load()};
  Log(LogLevel::kInfo, "draining",
      {{"drain_seconds", config.drain_seconds}, {"calls", drained.finished}});
  const SteadyTime give_up = SteadyAfter(absl::Seconds(config.drain_seconds));
  bool finished = deps.engine->AwaitIdle(UntilSteady(give_up));
  finished = server->AwaitQuiet(UntilSteady(give_up)) && finished;
  if (!finished) {
    EndUnfinished(deps, server, &drained);
    return drained;
  }
  CloseConnections(server);
  return drained;
}

// Drains. Returns the process's exit status, `failed` where that is one, or ends the process with
// it.
int Stop(const Config& config, const ExecuteDeps& deps, const Serving& serving, int failed) {
  serving.lifecycle->Enter(ServerPhase::kDraining);
  const Drained drained = Drain(config, deps, serving.server);
  const int status = failed != kDone ? failed : drained.status;
  serving.server->FlushFailures();
  Log(drained.ended ? LogLevel::kInfo : LogLevel::kWarning,
      absl::StrCat("stopped: drained ", drained.finished, ", status ", status),
      {{"drained", drained.finished}, {"status", status}});
  if (!drained.ended) EndProcess(status);
  return status;
}

}  // namespace

int ServeUntilTold(const Config& config, const ExecuteDeps& deps, const Serving& serving) {
  const sigset_t signals = StopSignals();
  // Told to end while it started: nobody has seen it ready.
  const bool begins = !AnyPending(signals);
  if (begins) ReportServing(serving);
  serving.reloader->Start();
  const int signal = AwaitSignal(signals, serving);
  serving.lifecycle->Enter(ServerPhase::kLameDuck);
  serving.server->SetServing(false);
  NotifyServiceManager("STOPPING=1\nSTATUS=draining");
  if (signal == kDevicesLost) {
    Log(LogLevel::kError, "stopping: the devices were lost; a new process may get them back");
    return Stop(config, deps, serving, kFailed);
  }
  // SIGINT comes from Ctrl-C at a terminal, where no load balancer has to notice.
  const double lame_duck_seconds = begins && signal != SIGINT ? config.lame_duck_seconds : 0;
  Log(LogLevel::kInfo, "stopping", {{"signal", signal}, {"lame_duck_seconds", lame_duck_seconds}});
  // Not ready, but serving, for load balancers to notice.
  if (lame_duck_seconds > 0) AwaitSignalFor(signals, lame_duck_seconds);
  return Stop(config, deps, serving, kDone);
}

}  // namespace warpcall
