#include "server/program/inspect_main.h"

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/registry.h"
#include "proto/common/status_macros.h"
#include "server/compile/foreign_compiler.h"
#include "server/judge/judge.h"
#include "server/process/answer.h"
#include "server/program/devices.h"
#include "server/program/options.h"
#include "server/program/self_test_main.h"
#include "server/program/version.h"
#include "server/transport/inquiry.h"

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
    case absl::StatusCode::kDeadlineExceeded:
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

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const process::RoleFlags& flags) {
  DeviceOptions options;
  options.selection = flags.device;
  options.fault_injection = flags.fault_injection;
  options.compile_cache = flags.compile_cache;
  options.measures = Measures(flags);
  std::vector<std::unique_ptr<Device>> devices;
  ASSIGN_OR_RETURN(devices, OpenDevices(options));
  // The device selected comes before the CPU, which is always there.
  return std::move(devices.front());
}

// Opens a push's GPU on a thread of its own while the push is compiled.
class GpuOpening {
 public:
  explicit GpuOpening(const process::RoleFlags& flags)
      : thread_([this, &flags] {
          device_ = OpenDevice(flags);
          if (device_.ok()) conditions_ = OpenConditions(**device_);
        }) {}

  absl::StatusOr<judge::RunSite> Await() {
    thread_.join();
    RETURN_IF_ERROR(device_.status());
    Device* const device = device_->get();
    return judge::RunSite{
        .device = device,
        .load =
            [device](const compiled::CudaCode& code, const manifest::KernelLaunches& launches,
                     bool scratch_zero) {
              return LoadPushed(code, launches, scratch_zero, device->properties());
            },
        .conditions = conditions_.get()};
  }

 private:
  absl::StatusOr<std::unique_ptr<Device>> device_ = nullptr;
  std::unique_ptr<ConditionReader> conditions_;
  std::jthread thread_;  // last: writes the above
};

DeviceProperties GpuOf(const process::RoleFlags& flags) {
  if (flags.gpu_architecture == 0) return judge::HopperProperties();
  DeviceProperties gpu;
  gpu.name = flags.device;
  gpu.kind = DeviceKind::kCuda;
  gpu.description = flags.gpu_description;
  gpu.multiprocessors = static_cast<int32_t>(flags.gpu_multiprocessors);
  gpu.shared_memory_per_block_bytes = flags.gpu_shared_memory;
  gpu.architecture = static_cast<int32_t>(flags.gpu_architecture);
  return gpu;
}

// Answers the one request that the process is for.
class Answerer {
 public:
  Answerer(const process::RoleFlags& flags, const process::Channel& channel)
      : flags_(flags), channel_(channel) {
    AddKernels(&registry_);
    if (flags.fault_injection) AddFaultInjection(&registry_);
    SetUnavailable(flags.unavailable_rows, &registry_);
  }

  absl::StatusOr<std::string> Answer(const std::string& request) {
    if (flags_.method == InspectionName(Inspection::kPush)) return JudgePush(request);
    std::unique_ptr<Device> device;
    ASSIGN_OR_RETURN(device, OpenDevice(flags_));
    if (Measures(flags_)) {
      const auto conditions = OpenConditions(*device);
      BenchmarkToAnswer benchmark =
          ToAnswer(request, device->properties().kind == DeviceKind::kCuda);
      benchmark.conditions = conditions.get();
      return AnswerBenchmark(registry_, device.get(), benchmark);
    }
    if (flags_.method == InspectionName(Inspection::kDescribe))
      return AnswerDescribe(registry_, device.get(), request);
    return AnswerProfile(registry_, std::move(device), request, flags_.traceparent);
  }

 private:
  BenchmarkToAnswer ToAnswer(const std::string& request, bool is_gpu) const {
    return {.bytes = request,
            .deadline_ns = flags_.deadline_ns,
            .server_version = kVersion,
            .cuda_version = is_gpu ? CudaVersion() : "",
            .multiply_adds = MultiplyAddsFor,
            .reads = ReadsFor,
            .tell = SendsParts(flags_, channel_)};
  }

  absl::StatusOr<std::string> JudgePush(const std::string& request) {
    const bool is_gpu = flags_.gpu_architecture != 0;
    PushToAnswer push = {.benchmark = ToAnswer(request, is_gpu),
                         .limit_ns = flags_.limit_ns,
                         .device = GpuOf(flags_),
                         .launch_time_max = absl::Nanoseconds(flags_.push_run_ns),
                         .give_up = GivesUp(channel_)};
    push.compile = [this](const compiled::ForeignSource& source, int64_t deadline_ns) {
      return CompileForeign(source,
                            {.cuda_include = flags_.cuda_include, .deadline_ns = deadline_ns});
    };
    if (is_gpu) {
      opening_ = std::make_unique<GpuOpening>(flags_);
      push.open = [this] { return opening_->Await(); };
    }
    return AnswerPush(registry_, push);
  }

  const process::RoleFlags& flags_;
  const process::Channel& channel_;
  Registry registry_;
  // Kept until the answer is sent: a verdict on what does not compile does not wait for the GPU.
  std::unique_ptr<GpuOpening> opening_;
};

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
  process::RoleFlags flags = {.role = process::Role::kInspect,
                              .device = inquiry.device,
                              .fault_injection = config.tests.fault_injection,
                              .compile_cache = config.compile_cache,
                              .method = InspectionName(inquiry.kind),
                              .traceparent = inquiry.traceparent,
                              .in_parts = inquiry.in_parts,
                              .deadline_ns = inquiry.deadline_ns,
                              .limit_ns = inquiry.limit_ns,
                              .unavailable_rows = UnavailableRows(registry),
                              .push_run_ns = static_cast<int64_t>(config.push_run_seconds * 1e9),
                              .cuda_include = CudaInclude(config)};
  if (inquiry.kind == Inspection::kPush && inquiry.properties != nullptr) {
    flags.gpu_architecture = inquiry.properties->architecture;
    flags.gpu_multiprocessors = inquiry.properties->multiprocessors;
    flags.gpu_shared_memory = inquiry.properties->shared_memory_per_block_bytes;
    flags.gpu_description = inquiry.properties->description;
  }
  return process::Child::Start(flags);
}

int RunInspection(const process::RoleFlags& flags, const process::Channel& parent) {
  PreferForOomKill();
  if (!Measures(flags)) cpu::LowerPriority(kNice);
  Answerer answerer(flags, parent);
  // One request comes. Afterwards the server reads this process's CPU time and closes the channel.
  const absl::Status served = process::ServeRequests(
      parent, [&](const process::Message& request) -> absl::StatusOr<std::string> {
        absl::StatusOr<std::string> answer = answerer.Answer(request.body);
        if (!answer.ok()) return ToContract(std::move(answer).status());
        return answer;
      });
  return served.ok() ? 0 : 1;
}

}  // namespace warpcall
