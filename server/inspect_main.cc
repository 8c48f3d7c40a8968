#include "server/inspect_main.h"

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/registry.h"
#include "proto/common/status_macros.h"
#include "server/devices.h"
#include "server/foreign_compiler.h"
#include "server/options.h"
#include "server/process/answer.h"
#include "server/self_test_main.h"
#include "server/transport/inquiry.h"
#include "server/version.h"

namespace warpcall {
namespace {

// Niceness of inspections that measure nothing: below all serving threads, as CpuDevice's threads.
constexpr int kNice = 19;

bool Measures(const process::RoleFlags& flags) {
  return flags.method == InspectionName(Inspection::kBenchmark) ||
         flags.method == InspectionName(Inspection::kTune) ||
         flags.method == InspectionName(Inspection::kPush);
}

// The codes of the contract: what libraries answer beyond them is our own defect.
absl::Status ToContract(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
      return status;
    default:
      return absl::InternalError(status.ToString());
  }
}

std::function<void(const std::string&)> SendsParts(const process::RoleFlags& flags,
                                                   const process::Channel& channel) {
  if (!flags.in_parts) return nullptr;
  return [&channel](const std::string& part) {
    // Should nobody read it, this process ends.
    process::SendAnswer(channel, {part, true}).IgnoreError();
  };
}

// Sends the last answer. The other side then closes the channel, at which this process ends.
std::function<void(const std::string&)> GivesUp(const process::Channel& channel) {
  return [&channel](const std::string& verdict) {
    process::SendAnswer(channel, {verdict}).IgnoreError();
    for (;;) pause();
  };
}

judge::Toolchain ToolchainFor(const process::RoleFlags& flags, const DeviceProperties& device) {
  judge::Toolchain toolchain;
  toolchain.compile = [&flags](const compiled::ForeignSource& source, int64_t deadline_ns) {
    return CompileForeign(source, {.cuda_include = flags.cuda_include, .deadline_ns = deadline_ns});
  };
  if (device.kind == DeviceKind::kCuda)
    toolchain.load = [device](const compiled::CudaCode& code,
                              const manifest::KernelLaunches& launches, bool scratch_zero) {
      return LoadPushed(code, launches, scratch_zero, device);
    };
  return toolchain;
}

absl::StatusOr<std::string> Answer(const process::RoleFlags& flags, const process::Channel& channel,
                                   const std::string& request) {
  Registry registry;
  AddKernels(&registry);
  if (flags.fault_injection) AddFaultInjection(&registry);
  SetUnavailable(flags.unavailable_rows, &registry);
  DeviceOptions options;
  options.selection = flags.device;
  options.fault_injection = flags.fault_injection;
  options.compile_cache = flags.compile_cache;
  options.measures = Measures(flags);
  std::vector<std::unique_ptr<Device>> devices;
  ASSIGN_OR_RETURN(devices, OpenDevices(options));
  // The device selected comes before the CPU, which is always there.
  std::unique_ptr<Device> device = std::move(devices.front());
  if (Measures(flags)) {
    const auto conditions = OpenConditions(*device);
    const bool is_gpu = device->properties().kind == DeviceKind::kCuda;
    const BenchmarkToAnswer benchmark = {.bytes = request,
                                         .deadline_ns = flags.deadline_ns,
                                         .server_version = kVersion,
                                         .cuda_version = is_gpu ? CudaVersion() : "",
                                         .conditions = conditions.get(),
                                         .multiply_adds = MultiplyAddsFor,
                                         .tell = SendsParts(flags, channel)};
    if (flags.method != InspectionName(Inspection::kPush))
      return AnswerBenchmark(registry, device.get(), benchmark);
    return AnswerPush(registry, device.get(),
                      {.benchmark = benchmark,
                       .toolchain = ToolchainFor(flags, device->properties()),
                       .launch_time_max = absl::Nanoseconds(flags.push_run_ns),
                       .give_up = GivesUp(channel)});
  }
  if (flags.method == InspectionName(Inspection::kDescribe))
    return AnswerDescribe(registry, device.get(), request);
  return AnswerProfile(registry, std::move(device), request, flags.traceparent);
}

// When memory runs out, it is this process that goes and not the server.
void PreferForOomKill() {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, "1000", 4);
  close(file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<process::Child>> StartInspection(const inspect::Inquiry& inquiry,
                                                                const Registry& registry,
                                                                const Config& config) {
  return process::Child::Start({.role = process::Role::kInspect,
                                .device = inquiry.device,
                                .fault_injection = config.tests.fault_injection,
                                .compile_cache = config.compile_cache,
                                .method = InspectionName(inquiry.kind),
                                .traceparent = inquiry.traceparent,
                                .in_parts = inquiry.in_parts,
                                .deadline_ns = inquiry.deadline_ns,
                                .unavailable_rows = UnavailableRows(registry),
                                .push_run_ns = static_cast<int64_t>(config.push_run_seconds * 1e9),
                                .cuda_include = CudaInclude(config)});
}

int RunInspection(const process::RoleFlags& flags, const process::Channel& parent) {
  PreferForOomKill();
  if (!Measures(flags)) cpu::LowerPriority(kNice);
  // One request comes. Afterwards the server reads this process's CPU time and closes the channel.
  const absl::Status served = process::ServeRequests(
      parent, [&](const process::Message& request) -> absl::StatusOr<std::string> {
        absl::StatusOr<std::string> answer = Answer(flags, parent, request.body);
        if (!answer.ok()) return ToContract(std::move(answer).status());
        return answer;
      });
  return served.ok() ? 0 : 1;
}

}  // namespace warpcall
