#include "server/program/self_test_main.h"

#include <unistd.h>

#include <cstdio>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/common/status_macros.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/process/child.h"
#include "server/self_test/child.h"

namespace warpcall {
namespace {

using self_test::SelfTest;
using self_test::Verdict;

// Every case of the tests takes a slow row minutes.
constexpr double kFullRowSeconds = 1800;

// Children that try the rows of a GPU at once, each with a context of its own.
constexpr int kGpuChildren = 2;

constexpr char kNotTried[] = "not tried yet: the server tries it while it serves";

absl::StatusOr<std::unique_ptr<process::Child>> StartChild(const Config& config,
                                                           const std::string& device,
                                                           const std::vector<int>& rows) {
  return process::Child::Start({.role = process::Role::kSelfTest,
                                .device = device,
                                .fault_injection = config.tests.fault_injection,
                                .compile_cache = config.compile_cache,
                                .depth = config.self_test,
                                .rows = {rows.begin(), rows.end()}});
}

absl::Status TryRowsOf(const process::RoleFlags& flags, const process::Channel& channel) {
  Registry registry;
  AddKernels(&registry);
  if (flags.fault_injection) AddFaultInjection(&registry);
  DeviceOptions options;
  options.selection = flags.device;
  options.compile_cache = flags.compile_cache;
  absl::StatusOr<std::vector<std::unique_ptr<Device>>> devices = OpenDevices(options);
  if (!devices.ok()) {
    self_test::ReportNoDevice(channel, devices.status());
    return devices.status();
  }
  self_test::Trials trials = {.registry = &registry, .device = devices->front().get()};
  if (flags.depth == "full") trials.depth = CheckDepth::kFull;
  const auto rows = static_cast<int64_t>(registry.rows().size());
  for (const int64_t row : flags.rows)
    if (row >= 0 && row < rows) trials.rows.push_back(static_cast<int>(row));
  return self_test::RunTrials(channel, trials);
}

const Kernel& KernelOf(const Registry& registry, const Row& row) {
  return registry.kernels()[static_cast<size_t>(row.kernel)];
}

std::string TypeNames(absl::Span<const DataType> types) {
  return absl::StrJoin(types, ",", [](std::string* out, DataType type) {
    absl::StrAppend(out, DataTypeName(type));
  });
}

// Returns true when other rows take the type, and none of them is offered or still to be tried.
bool OnlyReferenceIsLeft(const Registry& registry, const Kernel& kernel, DataType type) {
  bool any_failed = false;
  for (const int id : kernel.rows) {
    const Row& row = registry.rows()[static_cast<size_t>(id)];
    if (row.implementation.family == Family::kReference ||
        !absl::c_linear_search(row.implementation.data_types, type))
      continue;
    const Unavailability* const why_not = row.availability.why_not();
    if (why_not == nullptr || why_not->cause == Unavailability::Cause::kNotTried) return false;
    // Those of devices that are not there are not missed.
    any_failed |= why_not->cause != Unavailability::Cause::kDriver;
  }
  return any_failed;
}

void WarnOfReference(const Registry& registry, const Kernel& kernel) {
  std::vector<DataType> types;
  for (const DataType type : kDataTypes)
    if (OnlyReferenceIsLeft(registry, kernel, type)) types.push_back(type);
  if (!types.empty())
    Log(LogLevel::kWarning, "only the float64 reference serves a kernel",
        {{"kernel", kernel.op->name}, {"data_types", TypeNames(types)}});
}

// Logs and keeps what became of a row.
void Settle(const Verdict& verdict, Registry* registry) {
  registry->SetAvailability(verdict.row, verdict.unavailable);
  if (verdict.unavailable.reason.empty()) return;
  const Row& row = registry->rows()[static_cast<size_t>(verdict.row)];
  Log(LogLevel::kWarning, "a row is not offered",
      {{"kernel", KernelOf(*registry, row).op->name},
       {"implementation", FamilyName(row.implementation.family)},
       {"variant", row.implementation.name},
       {"device", verdict.device},
       {"reason", verdict.unavailable.reason}});
}

std::string TestingText(const Registry& registry, int row, int number, int count) {
  const Kernel& kernel = KernelOf(registry, registry.rows()[static_cast<size_t>(row)]);
  return absl::StrCat("testing ", kernel.op->name, " (", number, " of ", count, ")");
}

int CountNotTried(const Registry& registry) {
  return static_cast<int>(absl::c_count_if(
      registry.rows(), [](const Row& row) { return row.availability.is_not_tried(); }));
}

void PrintTable(const Registry& registry, absl::Span<const Verdict> verdicts) {
  constexpr char kFormat[] = "%-10s  %-20s  %-9s  %-7s  %-24s  %10s  %s\n";
  std::printf(kFormat, "KERNEL", "IMPLEMENTATION", "FAMILY", "DEVICE", "TYPES", "TIME", "VERDICT");
  for (const Verdict& verdict : verdicts) {
    const Row& row = registry.rows()[static_cast<size_t>(verdict.row)];
    const std::string& reason = verdict.unavailable.reason;
    char time[32] = "-";
    if (verdict.ns > 0)
      std::snprintf(time, sizeof(time), "%.1f ms", static_cast<double>(verdict.ns) / 1e6);
    std::printf(kFormat, KernelOf(registry, row).op->name, row.implementation.name,
                FamilyName(row.implementation.family), verdict.device.c_str(),
                TypeNames(verdict.data_types).c_str(), time,
                reason.empty() ? "passed" : reason.c_str());
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SelfTest>> StartSelfTest(const Config& config,
                                                        const DeviceOptions& devices,
                                                        const Registry& registry,
                                                        Lifecycle* lifecycle) {
  if (config.self_test == "off") return nullptr;
  SelfTest::Options options;
  std::vector<DeviceName> models;
  ASSIGN_OR_RETURN(models, ModelsOf(devices));
  for (DeviceName& model : models)
    options.subjects.push_back(
        {std::move(model.name), model.kind, model.kind == DeviceKind::kCuda ? kGpuChildren : 1});
  options.start = [config](const std::string& device, const std::vector<int>& rows) {
    return StartChild(config, device, rows);
  };
  const double seconds =
      config.self_test == "full" ? kFullRowSeconds : config.tests.self_test_row_seconds;
  options.row_ns_max = static_cast<int64_t>(seconds * 1e9);
  if (lifecycle != nullptr)
    options.progress = [lifecycle, &registry](int row, int number, int count) {
      lifecycle->SetTesting(row < 0 ? "" : TestingText(registry, row, number, count));
    };
  return std::make_unique<SelfTest>(registry, std::move(options));
}

absl::StatusOr<std::vector<Verdict>> AwaitSelfTest(SelfTest* self_test, Registry* registry) {
  if (self_test == nullptr) return std::vector<Verdict>();
  std::vector<Verdict> verdicts = self_test->Await();
  for (const Verdict& verdict : verdicts) {
    const Row& row = registry->rows()[static_cast<size_t>(verdict.row)];
    if (!verdict.unavailable.reason.empty() && row.implementation.family == Family::kReference)
      return absl::FailedPreconditionError(absl::StrCat(
          "the reference of ", KernelOf(*registry, row).op->name, ", ", row.implementation.name,
          ", ", verdict.unavailable.reason, ": nothing can be trusted here"));
    Settle(verdict, registry);
  }
  for (const int row : self_test->others())
    registry->SetAvailability(row, {Unavailability::Cause::kNotTried, kNotTried});
  return verdicts;
}

void TryOthers(SelfTest* self_test, std::vector<Verdict> verdicts, Offers offers) {
  if (self_test == nullptr || self_test->others().empty()) return;
  self_test->TryOthers([offers = std::move(offers), known = std::move(verdicts),
                        start_ns = MonotonicNs()](std::vector<Verdict> told) mutable {
    const size_t before = known.size();
    absl::c_move(told, std::back_inserter(known));
    self_test::ShareRates(*offers.registry, &known);
    for (const Verdict& verdict : absl::MakeConstSpan(known).subspan(before)) {
      if (verdict.has_rate) offers.set_rate(verdict.row, verdict.rate);
      Settle(verdict, offers.registry);
    }
    const Row& row = offers.registry->rows()[static_cast<size_t>(known.back().row)];
    WarnOfReference(*offers.registry, KernelOf(*offers.registry, row));
    if (CountNotTried(*offers.registry) == 0)
      Log(LogLevel::kInfo, "all rows were tried",
          {{"seconds", static_cast<double>(MonotonicNs() - start_ns) / 1e9}});
  });
}

std::string Readiness(const Registry& registry) {
  const int count = CountNotTried(registry);
  if (count == 0) return "ok";
  return absl::StrCat("ok; implementations that are not tried yet: ", count);
}

void LeaveOutUnserved(const Engine& engine, Registry* registry) {
  for (const Row& row : registry->rows()) {
    const DeviceKind kind = row.implementation.device_kind;
    bool served = false;
    for (int i = 0; i < engine.device_count(); ++i)
      served |= engine.device(i).properties().kind == kind;
    if (served || !row.availability.is_offered()) continue;
    registry->SetAvailability(row.id, {Unavailability::Cause::kDriver,
                                       absl::StrCat("runs on ", DeviceKindName(kind),
                                                    " devices, and this server has none")});
  }
  for (const Kernel& kernel : registry->kernels()) WarnOfReference(*registry, kernel);
}

std::vector<std::string> UnavailableRows(const Registry& registry) {
  std::vector<std::string> rows;
  for (const Row& row : registry.rows())
    if (const Unavailability* const why_not = row.availability.why_not(); why_not != nullptr)
      rows.push_back(absl::StrCat(row.id, ":", why_not->reason));
  return rows;
}

void SetUnavailable(absl::Span<const std::string> rows, Registry* registry) {
  for (const std::string& row : rows) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(row, absl::MaxSplits(':', 1));
    size_t id;
    if (!absl::SimpleAtoi(parts.first, &id) || id >= registry->rows().size()) continue;
    registry->SetAvailability(static_cast<int>(id),
                              {Unavailability::Cause::kSelfTest, parts.second});
  }
}

int TryRows(const process::RoleFlags& flags, const process::Channel& parent) {
  const absl::Status tried = TryRowsOf(flags, parent);
  // Not through destructors: a device that a row has broken may wait for ever.
  EndProcess(tried.ok() ? 0 : 1);
}

int CheckRows(const Config& config, const DeviceOptions& devices) {
  Registry registry;
  AddKernels(&registry);
  if (config.tests.fault_injection) AddFaultInjection(&registry);
  Config checked = config;
  if (checked.self_test == "off") checked.self_test = "quick";
  const absl::StatusOr<std::unique_ptr<SelfTest>> started =
      StartSelfTest(checked, devices, registry, nullptr);
  if (!started.ok()) {
    Say(STDERR_FILENO, LogLevel::kError, started.status().message());
    return 1;
  }
  const int64_t start_ns = MonotonicNs();
  std::vector<Verdict> verdicts = (*started)->Await();
  (*started)->TryOthers(
      [&](std::vector<Verdict> told) { absl::c_move(told, std::back_inserter(verdicts)); });
  (*started)->Await();
  absl::c_sort(verdicts, [](const Verdict& a, const Verdict& b) { return a.row < b.row; });
  PrintTable(registry, verdicts);
  std::printf("%zu rows tried in %.2f s\n", verdicts.size(),
              static_cast<double>(MonotonicNs() - start_ns) / 1e9);
  const bool failed = absl::c_any_of(verdicts, [](const Verdict& verdict) {
    return !verdict.unavailable.reason.empty() &&
           (verdict.unavailable.cause == Unavailability::Cause::kSelfTest ||
            verdict.unavailable.cause == Unavailability::Cause::kCompile);
  });
  return failed ? 1 : 0;
}

}  // namespace warpcall
