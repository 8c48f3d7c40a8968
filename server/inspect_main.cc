#include "server/inspect_main.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "kernels/registry.h"
#include "server/devices.h"
#include "server/transport/inquiry.h"

namespace warpcall {
namespace {

// Below everything that serves requests: see CpuDevice's threads.
constexpr int kNice = 19;

absl::StatusOr<std::string> Answer(const Config& config, const std::string& request) {
  Registry registry;
  AddKernels(&registry);
  if (config.fault_injection) RETURN_IF_ERROR(AddFaultInjection(&registry));
  DeviceOptions options;
  options.selection = config.inspect_device;
  options.fault_injection = config.fault_injection;
  std::vector<std::unique_ptr<Device>> devices;
  ASSIGN_OR_RETURN(devices, OpenDevices(options));
  // The device selected comes before the CPU, which is always there.
  std::unique_ptr<Device> device = std::move(devices.front());
  if (config.inspect == inspect::KindName(inspect::Kind::kBenchmark))
    return AnswerBenchmark(registry, device.get(), request);
  return AnswerProfile(registry, std::move(device), request, config.inspect_traceparent);
}

}  // namespace

absl::StatusOr<std::unique_ptr<inspect::Child>> StartInspection(const inspect::Inquiry& inquiry,
                                                                bool fault_injection) {
  std::vector<std::string> arguments = {absl::StrCat("--inspect=", inspect::KindName(inquiry.kind)),
                                        absl::StrCat("--inspect_device=", inquiry.device)};
  if (!inquiry.traceparent.empty())
    arguments.push_back(absl::StrCat("--inspect_traceparent=", inquiry.traceparent));
  if (fault_injection) arguments.push_back("--test_fault_injection");
  return inspect::Child::Start(arguments);
}

int RunInspection(const Config& config) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  [[maybe_unused]] const int niceness = nice(kNice);
  const absl::Status served = inspect::ServeParent(
      inspect::InheritedSocket(),
      [&](const std::string& request) { return Answer(config, request); }, [] { _exit(1); });
  return served.ok() ? 0 : 1;
}

}  // namespace warpcall
