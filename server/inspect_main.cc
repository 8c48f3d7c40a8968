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
#include "server/process/answer.h"
#include "server/process/parent.h"
#include "server/self_test_main.h"
#include "server/transport/inquiry.h"
#include "server/version.h"

namespace warpcall {
namespace {

// Of what measures nothing: below everything that serves requests, as CpuDevice's threads are.
constexpr int kNice = 19;

bool Measures(const Config& config) {
  return config.inspect_method == InspectionName(Inspection::kBenchmark) ||
         config.inspect_method == InspectionName(Inspection::kTune);
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

std::function<void(const std::string&)> SendsParts(const Config& config,
                                                   const process::Channel& channel) {
  if (!config.inspect_in_parts) return nullptr;
  return [&channel](const std::string& part) {
    // Should nobody read it, this process ends.
    process::SendAnswer(channel, {part, true}).IgnoreError();
  };
}

absl::StatusOr<std::string> Answer(const Config& config, const process::Channel& channel,
                                   const std::string& request) {
  Registry registry;
  AddKernels(&registry);
  if (config.fault_injection) AddFaultInjection(&registry);
  SetUnavailable(config.unavailable_rows, &registry);
  DeviceOptions options;
  options.selection = config.inspect_device;
  options.fault_injection = config.fault_injection;
  options.compile_cache = config.compile_cache;
  options.measures = Measures(config);
  std::vector<std::unique_ptr<Device>> devices;
  ASSIGN_OR_RETURN(devices, OpenDevices(options));
  // The device selected comes before the CPU, which is always there.
  std::unique_ptr<Device> device = std::move(devices.front());
  if (Measures(config)) {
    const auto conditions = OpenConditions(*device);
    const bool is_gpu = device->properties().kind == DeviceKind::kCuda;
    return AnswerBenchmark(registry, device.get(),
                           {.bytes = request,
                            .deadline_ns = config.inspect_deadline_ns,
                            .server_version = kVersion,
                            .cuda_version = is_gpu ? CudaVersion() : "",
                            .conditions = conditions.get(),
                            .multiply_adds = MultiplyAddsFor,
                            .tell = SendsParts(config, channel)});
  }
  if (config.inspect_method == InspectionName(Inspection::kDescribe))
    return AnswerDescribe(registry, device.get(), request);
  return AnswerProfile(registry, std::move(device), request, config.inspect_traceparent);
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
  std::vector<std::string> arguments = {
      absl::StrCat("--inspect_method=", InspectionName(inquiry.kind)),
      absl::StrCat("--inspect_device=", inquiry.device)};
  if (!inquiry.traceparent.empty())
    arguments.push_back(absl::StrCat("--inspect_traceparent=", inquiry.traceparent));
  if (inquiry.in_parts) arguments.push_back("--inspect_in_parts");
  if (inquiry.deadline_ns != kNoDeadline)
    arguments.push_back(absl::StrCat("--inspect_deadline_ns=", inquiry.deadline_ns));
  if (config.fault_injection) arguments.push_back("--test_fault_injection");
  if (!config.compile_cache.empty())
    arguments.push_back(absl::StrCat("--compile_cache=", config.compile_cache));
  AppendUnavailable(registry, &arguments);
  return process::Child::Start(arguments);
}

int RunInspection(const Config& config) {
  const absl::StatusOr<const process::Channel*> channel = process::JoinParent();
  if (!channel.ok()) return 1;
  PreferForOomKill();
  if (!Measures(config)) cpu::LowerPriority(kNice);
  // One request comes. Afterwards the server reads this process's CPU time and closes the channel.
  const absl::Status served = process::ServeRequests(
      **channel, [&](const process::Message& request) -> absl::StatusOr<std::string> {
        absl::StatusOr<std::string> answer = Answer(config, **channel, request.body);
        if (!answer.ok()) return ToContract(std::move(answer).status());
        return answer;
      });
  return served.ok() ? 0 : 1;
}

}  // namespace warpcall
