// warpcalld. The order of declarations in Serve is the order of shutdown, backwards.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/compiled/counts.h"
#include "kernels/compiled/disk_cache.h"
#include "kernels/compiled/nvrtc.h"
#include "kernels/cpu/thread_pool.h"
#include "proto/common/status_macros.h"
#include "proto/common/steady_wait.h"
#include "server/compile/compiling.h"
#include "server/compile/foreign_compiler.h"
#include "server/engine/engine.h"
#include "server/engine/tuning_cache.h"
#include "server/flags/config.h"
#include "server/flags/exposure.h"
#include "server/inspect/inspector.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/metrics/http_server.h"
#include "server/metrics/lifecycle.h"
#include "server/metrics/prometheus_sink.h"
#include "server/metrics/traffic.h"
#include "server/process/child.h"
#include "server/process/parent.h"
#include "server/process/role.h"
#include "server/program/access_files.h"
#include "server/program/devices.h"
#include "server/program/flag_check.h"
#include "server/program/inspect_main.h"
#include "server/program/memory_sum.h"
#include "server/program/options.h"
#include "server/program/reload.h"
#include "server/program/revision.h"
#include "server/program/self_test_main.h"
#include "server/program/serving.h"
#include "server/program/version.h"
#include "server/runtime/cpu/control_group.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/system/housekeeper.h"
#include "server/system/memory_trim.h"
#include "server/system/signals.h"
#include "server/system/thread_limits.h"
#include "server/tracing/tracer.h"
#include "server/transport/bandwidths.h"
#include "server/transport/grpc_1_51/busy_poll.h"
#include "server/transport/grpc_log.h"
#include "server/transport/server.h"
#include "server/transport/span_exporter.h"

namespace warpcall {
namespace {

// How long the end waits for a file that is still being read.
constexpr absl::Duration kReadTimeout = absl::Seconds(2);

// Exit statuses, as README and --help say; 2 is ParseConfig's, 3 ServeUntilTold's.
constexpr int kDone = 0;
constexpr int kFailed = 1;

// glibc gives threads up to eight arenas a core, and each keeps what the messages that it once held
// left behind: on 16 cores some 100 MiB more after 10 000 mixed requests. With few, throughput on
// one connection was the same within its noise.
constexpr int kArenas = 4;

// Windows of streams that staging has room for, so that small staging does not stop them.
constexpr int64_t kWindowsInStaging = 8;

// Requests whose spans wait to be sent: a second's worth of 8 connections at full speed, 4 MiB.
constexpr size_t kTracedRecordsMax = size_t{1} << 13;

// Adds up the run-time compilation counts of all devices.
compiled::Counts CompileCounts(const Engine& engine) {
  compiled::Counts counts;
  for (int i = 0; i < engine.device_count(); ++i) counts += engine.device(i).compile_counts();
  return counts;
}

// The caches on disk.
struct Caches {
  std::unique_ptr<compiled::DiskCache> compiled;  // null: compiled code is not kept
  std::unique_ptr<TuningCache> tuning;
};

// The objects that the metrics read; they outlive the metrics.
struct Told {
  const Lifecycle& lifecycle;
  const Engine& engine;
  const std::vector<std::string>& devices_left_out;
  const AccessFiles& access;
  const Reloader& reloader;
  const GpuMonitor* monitor;  // null: no GPU
  const Caches& caches;
  const tracing::Tracer* tracer;  // null: nothing is traced
};

BuildInfo Build() { return {kVersion, absl::StrCat(WARPCALL_COMPILER), CudaVersion()}; }

PrometheusSink::Options ToSinkOptions(const Told& told) {
  const Engine& engine = told.engine;
  PrometheusSink::Options options;
  for (int i = 0; i < engine.device_count(); ++i) {
    const DeviceProperties& properties = engine.device(i).properties();
    options.devices.push_back({properties.name, properties.kind});
  }
  options.devices_left_out = told.devices_left_out;
  options.build = Build();
  options.phase = [&lifecycle = told.lifecycle] { return lifecycle.phase(); };
  options.snapshot_devices = [&engine] { return engine.Snapshot(); };
  options.device_errors = [&engine] { return DeviceErrorCounts(engine); };
  options.compile_counts = [&engine] { return CompileCounts(engine); };
  options.auth_refusals = [&gate = *told.access.gate] { return AuthRefusals(gate); };
  options.principal_calls = [&gate = *told.access.gate] { return PrincipalCalls(gate); };
  options.certificate_expiries = [&access = told.access] { return CertificateExpiries(access); };
  options.log_lines_dropped = LogLinesDropped;
  options.reload_failures = [&reloader = told.reloader] { return reloader.failures(); };
  if (const compiled::DiskCache* const cache = told.caches.compiled.get(); cache != nullptr)
    options.compile_cache_bytes = [cache] { return cache->bytes(); };
  options.tuning_errors = [&tuning = *told.caches.tuning] { return tuning.errors(); };
  if (const GpuMonitor* const monitor = told.monitor; monitor != nullptr)
    options.gpu_readings = [monitor] { return monitor->Readings(); };
  if (const tracing::Tracer* const tracer = told.tracer; tracer != nullptr)
    options.span_counts = [tracer] { return tracer->counts(); };
  return options;
}

inspect::Inspector::Options ToInspectorOptions(const Config& config, const Registry& registry) {
  inspect::Inspector::Options options;
  options.waiting_max = config.inspect_queue;
  options.task_ns_max = static_cast<int64_t>(config.inspect_seconds * 1e9);
  options.answer_bytes_max = static_cast<size_t>(config.max_message_mib * kMib);
  options.start = [&config, &registry](const inspect::Inquiry& inquiry) {
    return StartInspection(inquiry, registry, config);
  };
  return options;
}

std::string Hostname() {
  char hostname[HOST_NAME_MAX + 1] = "";
  gethostname(hostname, HOST_NAME_MAX);
  return hostname;
}

// Answers probes from the first moment on.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttp(const Config& config,
                                                      const Lifecycle& lifecycle) {
  HttpServer::Options options;
  options.listen = config.metrics_listen;
  options.scrape = [&lifecycle](MetricsFormat format) { return lifecycle.Scrape(format); };
  options.ready = [&lifecycle] { return lifecycle.Ready(); };
  options.status = [&lifecycle] {
    ServerStatus status = lifecycle.Status();
    status.hostname = Hostname();
    return status;
  };
  std::unique_ptr<HttpServer> http;
  ASSIGN_OR_RETURN(http, HttpServer::Start(std::move(options)));
  Log(LogLevel::kInfo, "the metrics port answers", {{"metrics_listen", http->address()}});
  return http;
}

Lifecycle::Answers ToAnswers(const PrometheusSink& sink, const ExecuteDeps& deps) {
  Lifecycle::Answers answers;
  answers.scrape = [&sink](MetricsFormat format) { return sink.Scrape(format); };
  answers.describe = [&sink](ServerStatus* status) { sink.Describe(status); };
  answers.ready = [&deps]() -> absl::StatusOr<std::string> {
    RETURN_IF_ERROR(CheckReady(deps));
    return Readiness(*deps.registry);
  };
  return answers;
}

InspectAccess ToInspectAccess(const std::string& name) {
  if (name == "local") return InspectAccess::kLocal;
  return name == "off" ? InspectAccess::kOff : InspectAccess::kOn;
}

PushAccess ToPushAccess(const std::string& push) {
  PushAccess access;
  access.on = push != "off";
  if (access.on && push != "on") access.devices = absl::StrSplit(push, ',');
  return access;
}

ServerFacts FactsOf(const Config& config) {
  return {.version = kVersion,
          .revision = kRevision,
          .started_unix_ns = absl::ToUnixNanos(absl::Now()),
          .changed_flags = config.changed_flags,
          .hostname = Hostname()};
}

// Converts the flags to the limits of calls.
CallLimits ToCallLimits(const Config& config, int devices) {
  const MemorySum memory(config, devices);
  CallLimits limits;
  limits.message_bytes_max = config.max_message_mib * kMib;
  limits.benchmark_bytes_max = config.benchmark_mib * kMib;
  limits.inspect_access = ToInspectAccess(config.inspect);
  limits.push = ToPushAccess(config.push);
  // A window is a request like any other, so it has to fit into the limit of one.
  limits.stream_window_bytes =
      std::min({limits.stream_window_bytes, config.staging_mib * kMib / kWindowsInStaging,
                limits.message_bytes_max});
  limits.received_bytes_max = memory.received_mib * kMib;
  limits.memory_mib = memory.sum_mib();
  limits.graph_bytes_max = config.graph_mib * kMib;
  limits.gpus_min = config.gpus_min;
  limits.send_ns_max = static_cast<int64_t>(config.send_seconds * 1e9);
  limits.max_connection_age_ms = static_cast<int>(config.max_connection_age_seconds * 1e3);
  limits.allow_shared_memory = config.allow_shared_memory;
  limits.report_load = config.load_reports;
  limits.pollers_few = config.pollers < 0 ? Pollers::kFew : config.pollers;
  return limits;
}

// Null without --compile_cache.
absl::StatusOr<std::unique_ptr<compiled::DiskCache>> OpenCompileCache(const Config& config) {
  if (config.compile_cache.empty()) return nullptr;
  ASSIGN_OR_RETURN(compiled::DiskCache cache, compiled::DiskCache::Open(config.compile_cache));
  return std::make_unique<compiled::DiskCache>(std::move(cache));
}

// Writes the first lines of the log.
void LogStart(const Config& config) {
  const std::string grpc = GrpcServer::GrpcVersion();
  Log(LogLevel::kInfo, "starting",
      {{"version", kVersion},
       {"grpc_version", grpc},
       {"threads_max", ThreadsNeeded(ToThreadNeeds(config))}});
  if (const std::string warning = GrpcWarning(config, grpc); !warning.empty())
    Log(LogLevel::kWarning, warning);
}

void SetRates(const Registry& registry, std::vector<self_test::Verdict> verdicts, Engine* engine) {
  self_test::ShareRates(registry, &verdicts);
  for (const self_test::Verdict& verdict : verdicts)
    if (verdict.has_rate) engine->SetRate(verdict.row, verdict.rate);
}

// Null without --otlp_endpoint, of which errors say what is wrong.
absl::StatusOr<std::unique_ptr<tracing::Tracer>> MakeTracer(const Config& config) {
  if (config.otlp_endpoint.empty()) return nullptr;
  RETURN_IF_ERROR(ParseOtlpEndpoint(config.otlp_endpoint).status());
  return std::make_unique<tracing::Tracer>(config.otlp_sample_ratio, kTracedRecordsMax);
}

// Null without a tracer.
std::unique_ptr<SpanExporter> StartSpanExporter(const Config& config, const ExecuteDeps& deps) {
  if (deps.tracer == nullptr) return nullptr;
  return std::make_unique<SpanExporter>(
      deps.tracer, SpanSource{deps.registry, deps.engine, deps.facts.version, deps.facts.hostname},
      *ParseOtlpEndpoint(config.otlp_endpoint));
}

// Looks after what the server holds and after its health, as long as it lives.
std::unique_ptr<MemoryTrim> WatchMemory(const Config& config, Engine* engine, GrpcServer* server) {
  auto look = [&config, engine, server, rule = ShedRule()](int64_t used_bytes) mutable {
    server->RunPeriodicChecks();
    const int64_t limit_bytes =
        ShedLimitBytes(config, engine->device_count(), engine->ResidentHostBytes());
    const int halvings = rule.Next(used_bytes, limit_bytes);
    server->ShedReceived(halvings);
    return halvings > 0;
  };
  return std::make_unique<MemoryTrim>(MemoryLimitBytes(), std::move(look));
}

absl::Status CheckPushDevices(const Engine& engine, const PushAccess& access) {
  std::vector<std::string> names;
  for (int i = 0; i < engine.device_count(); ++i)
    names.push_back(engine.device(i).properties().name);
  for (const std::string& device : access.devices)
    if (!absl::c_linear_search(names, device))
      return absl::InvalidArgumentError(absl::StrCat(
          "--push: there is no device \"", device, "\"; available: ", absl::StrJoin(names, ", ")));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GrpcServer>> StartGrpc(const Config& config,
                                                      const AccessFiles& access,
                                                      ExecuteDeps* deps) {
  return GrpcServer::Start(
      config.listen, deps,
      access.certificates == nullptr ? nullptr : access.certificates->credentials());
}

// Checks what needs nothing yet.
absl::Status CheckStart(const Config& config) {
  RETURN_IF_ERROR(CheckExposure(config));
  LogStart(config);
  RETURN_IF_ERROR(CheckDescriptorLimit());
  return CheckThreadsFor(ToThreadNeeds(config));
}

void WatchFlagFile(const Config& config, Reloader* reloader) {
  if (!config.flagfile.empty())
    reloader->Add({"flagfile", config.flagfile},
                  [&config] { return ReadFlagFileAgain(config, CheckFlags); });
}

// Has the rates of the last minute kept, as long as it lives.
std::unique_ptr<Timer> SampleTraffic(PrometheusSink* sink) {
  auto timer = std::make_unique<Timer>(
      "traffic", [sink] { sink->SampleTraffic(); }, TrafficHistory::kPeriod);
  timer->Start(TrafficHistory::kPeriod);
  return timer;
}

// Ends `start_watch` when it begins to listen.
absl::StatusOr<int> Serve(const Config& config, std::optional<StartWatch>* start_watch) {
  RETURN_IF_ERROR(CheckStart(config));
  Lifecycle lifecycle(Build(), LogLinesDropped);
  std::unique_ptr<HttpServer> http;
  ASSIGN_OR_RETURN(http, StartHttp(config, lifecycle));
  std::unique_ptr<tracing::Tracer> tracer;
  ASSIGN_OR_RETURN(tracer, MakeTracer(config));
  AccessFiles access;
  Reloader reloader;
  ASSIGN_OR_RETURN(access, OpenAccessFiles(config, &reloader));
  WatchFlagFile(config, &reloader);
  InstallPhaseWatcher();
  // Its processes open it again, and do without where that fails.
  Caches caches;
  ASSIGN_OR_RETURN(caches.compiled, OpenCompileCache(config));
  Registry registry;
  AddKernels(&registry);
  if (config.tests.fault_injection) AddFaultInjection(&registry);
  std::unique_ptr<self_test::SelfTest> self_test;  // while devices are opened and memory is pinned
  ASSIGN_OR_RETURN(self_test, StartSelfTest(config, ToDeviceOptions(config), registry, &lifecycle));
  lifecycle.SetStep("opening the devices");  // and obtaining staging memory
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> devices_left_out;
  ASSIGN_OR_RETURN(devices, OpenDevices(ToDeviceOptions(config), &devices_left_out));
  RETURN_IF_ERROR(CheckMemory(config, static_cast<int>(devices.size())));
  std::unique_ptr<Engine> engine;
  ASSIGN_OR_RETURN(engine, Engine::Create(registry, std::move(devices), ToEngineOptions(config)));
  lifecycle.SetStep("");
  std::vector<self_test::Verdict> verdicts;
  ASSIGN_OR_RETURN(verdicts, AwaitSelfTest(self_test.get(), &registry));
  LeaveOutUnserved(*engine, &registry);
  ASSIGN_OR_RETURN(caches.tuning,
                   TuningCache::Open(registry, &engine->tuning(), config.tuning_cache));
  SetRates(registry, verdicts, engine.get());
  const std::unique_ptr<GpuMonitor> monitor = StartGpuMonitor(*engine);
  const Told told{lifecycle, *engine,       devices_left_out, access,
                  reloader,  monitor.get(), caches,           tracer.get()};
  PrometheusSink sink(registry, ToSinkOptions(told));
  const std::unique_ptr<Timer> sampling = SampleTraffic(&sink);
  inspect::Inspector inspector(ToInspectorOptions(config, registry));
  ExecuteDeps deps = {.registry = &registry,
                      .engine = engine.get(),
                      .metrics = &sink,
                      .clock = MonotonicNs,
                      .inspector = &inspector,
                      .tuning = caches.tuning.get(),
                      .gate = access.gate.get(),
                      .tracer = tracer.get(),
                      .facts = FactsOf(config),
                      .limits = ToCallLimits(config, engine->device_count())};
  RETURN_IF_ERROR(CheckPushDevices(*engine, deps.limits.push));
  lifecycle.SetAnswers(ToAnswers(sink, deps));
  const absl::Cleanup end_http = [&http] { http = nullptr; };  // before what it answers with
  const std::unique_ptr<SpanExporter> exporter = StartSpanExporter(config, deps);
  start_watch->reset();  // sockets are to be given back
  std::unique_ptr<GrpcServer> server;
  ASSIGN_OR_RETURN(server, StartGrpc(config, access, &deps));
  const std::unique_ptr<MemoryTrim> memory = WatchMemory(config, engine.get(), server.get());
  MeasureBandwidths(engine.get(), &inspector, MonotonicNs);
  const absl::Cleanup end_self_test = [&self_test] { self_test = nullptr; };
  TryOthers(
      self_test.get(), std::move(verdicts),
      {&registry, [&engine](int row, const ServiceRate& rate) { engine->SetRate(row, rate); }});
  const int status =
      ServeUntilTold(config, deps, {server.get(), http.get(), &reloader, &lifecycle});
  // A file that is still being read, by a system that hangs, uses what the end would take down.
  if (!reloader.End(kReadTimeout)) EndProcess(status);
  return status;
}

// Sets up what all kinds of this process have.
absl::Status SetUp(LogLevel level, LogFormat format) {
  SetLogLevel(level);
  SetLogFormat(format);
  if (const absl::Status started = StartLogWriter(); !started.ok())
    return absl::ResourceExhaustedError(absl::StrCat(started.message(), ": ", ThreadLimits()));
  TakeGrpcLog();
  mallopt(M_ARENA_MAX, kArenas);
  // Debian's Abseil is built with its detector, which gRPC's and our mutexes pay for each time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  RaiseDescriptorLimit();  // before anything starts a process or listens
  return absl::OkStatus();
}

// Sets up what the server and its workers have.
void SetUpToServe() {
  // nohup has it ignored, and then nobody could wait for it.
  signal(SIGHUP, SIG_DFL);
  // The log's reader may go away. Children restore the default (process/child.cc).
  signal(SIGPIPE, SIG_IGN);
  CompileInOwnProcesses();
}

absl::StatusOr<int> RunServer(const Config& config, std::optional<StartWatch>* start_watch) {
  RETURN_IF_ERROR(SetUp(config.log_level, config.log_format));
  for (const std::string& warning : config.warnings) Log(LogLevel::kWarning, warning);
  if (config.check_flags) return CheckFlagsAndEnd(config);
  if (config.check) {
    start_watch->reset();
    UnblockStopSignals();
    return CheckRows(config, ToDeviceOptions(config));
  }
  SetUpToServe();
  if (start_watch->has_value()) (*start_watch)->ToServe();
  SetBusyPoll(BusyPoll(config));
  return Serve(config, start_watch);
}

// Ends the process at once: what tools do at the end of a process is out of a confined one's reach.
[[noreturn]] void RunCompiler(const process::RoleFlags& flags, const absl::Status& confined,
                              const process::Channel& parent) {
  if (!confined.ok())
    Log(LogLevel::kDebug, "a compiler is not confined", {{"error", confined.message()}});
  const absl::Status served =
      flags.foreign ? ServeForeignCompilation(parent, confined, compiled::CompileByNvrtc)
                    : ServeCompilations(parent, compiled::CompileByNvrtc);
  EndProcess(served.ok() ? kDone : kFailed);
}

// Runs a child process that a server started.
absl::StatusOr<int> RunChild(process::Role role, absl::Span<const std::string> words) {
  process::RoleFlags flags;
  ASSIGN_OR_RETURN(flags, process::ParseRoleFlags(role, words));
  const bool compiles = role == process::Role::kCompiler;
  // Any thread that compiles may have started a compiler of programs, and it outlives the thread.
  if (!compiles || flags.foreign) process::EndWithStarter();
  // No faster than kernels.
  if (flags.foreign) cpu::LowerPriority(CpuDevice::kServingNice);
  // Before it has threads.
  const absl::Status confined = compiles ? ConfineCompiler(flags) : absl::OkStatus();
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kLogfmt;
  ParseLogLevel(flags.log_level, &level);
  ParseLogFormat(flags.log_format, &format);
  RETURN_IF_ERROR(SetUp(level, format));
  const process::Channel* parent;
  ASSIGN_OR_RETURN(parent, process::JoinParent());
  switch (role) {
    case process::Role::kInspect:
      return RunInspection(flags, *parent);
    case process::Role::kSelfTest:
      return TryRows(flags, *parent);
    case process::Role::kCompiler:
      RunCompiler(flags, confined, *parent);
    case process::Role::kWorker:
      break;
  }
  SetUpToServe();
  DeviceOptions options;
  options.selection = flags.device;
  options.lanes_per_device = static_cast<int>(flags.lanes);
  options.fault_injection = flags.fault_injection;
  options.compile_cache = flags.compile_cache;
  const MemoryTrim memory_trim(MemoryLimitBytes());
  return RunWorker(options, *parent).ok() ? kDone : kFailed;
}

int Main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const absl::optional<process::Role> role =
      words.empty() ? absl::nullopt : process::FindRole(words.front());
  absl::StatusOr<int> result = kFailed;
  if (role.has_value()) {
    result = RunChild(*role, absl::MakeConstSpan(words).subspan(1));
  } else {
    std::optional<StartWatch> start_watch;
    if (!StopSignalsWereBlocked()) start_watch.emplace();
    Config config;
    int exit_code;
    if (!ParseConfig(argc, argv, &config, &exit_code)) return exit_code;
    result = RunServer(config, &start_watch);
  }
  if (!result.ok()) Say(STDERR_FILENO, LogLevel::kError, result.status().message());
  process::KillChildren();
  FlushLog();
  return result.value_or(kFailed);
}

}  // namespace
}  // namespace warpcall

int main(int argc, char** argv) {
  warpcall::ExplainRefusedThreads();
  signal(SIGXFSZ, SIG_IGN);  // a file that may grow no more: the write fails and says so
  return warpcall::Main(argc, argv);
}
