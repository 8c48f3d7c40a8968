#include "server/program/memory_sum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/log/log.h"
#include "server/runtime/cpu/control_group.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall {
namespace {

// Memory of the server itself and of kernels' workspaces, beyond what the flags allow.
constexpr int64_t kOwnMib = 100;
// Margin above the sum before the server ends calls to free memory: malloc and gRPC add so much to
// the bytes that are counted.
constexpr int64_t kOverSumPercent = 15;
// The server ends calls at the latest at this share of the memory that the process may use.
constexpr int64_t kOfMemoryPercent = 90;

}  // namespace

MemorySum::MemorySum(const Config& config, int devices)
    : staging_mib(config.staging_mib * devices),
      received_mib(config.queue_mib * devices + config.reception_mib),
      inflated_mib(2 * config.max_message_mib),
      inspection_mib(2 * config.max_message_mib),
      resident_mib(config.resident_mib < 0 ? CpuDevice::kResidentBytesMax / kMib
                                           : config.resident_mib) {}

int64_t ShedLimitBytes(const Config& config, int devices, int64_t resident_bytes) {
  const MemorySum allowed(config, devices);
  const int64_t passing_mib = allowed.sum_mib() - allowed.resident_mib;
  return std::min((passing_mib * (100 + kOverSumPercent) / 100 + kOwnMib) * kMib + resident_bytes,
                  MemoryLimitBytes() / 100 * kOfMemoryPercent);
}

absl::Status CheckMemory(const Config& config, int devices) {
  const MemorySum allowed(config, devices);
  const int64_t memory_mib = MemoryLimitBytes() / kMib;
  if (allowed.staging_mib > memory_mib)
    return absl::FailedPreconditionError(absl::StrCat(
        "--staging_mib: ", config.staging_mib, " MiB for each of ", devices,
        devices == 1 ? " device" : " devices", " is more than this machine's memory, or what its ",
        "control group or ulimit -v leaves of it: ", memory_mib, " MiB; the flags allow ",
        allowed.sum_mib(), " MiB in all: staging ", allowed.staging_mib, ", received messages ",
        allowed.received_mib, ", inflated ones ", allowed.inflated_mib, ", one inspection ",
        allowed.inspection_mib, ", tensors that stay ", allowed.resident_mib));
  Log(LogLevel::kInfo, "memory limits",
      {{"staging_mib", allowed.staging_mib},
       {"received_mib", allowed.received_mib},
       {"inflated_mib", allowed.inflated_mib},
       {"inspection_mib", allowed.inspection_mib},
       {"resident_mib", allowed.resident_mib},
       {"sum_mib", allowed.sum_mib()},
       {"memory_mib", memory_mib}});
  if (allowed.sum_mib() > memory_mib)
    Log(LogLevel::kWarning, "the flags allow more memory than there is",
        {{"sum_mib", allowed.sum_mib()}, {"memory_mib", memory_mib}});
  return absl::OkStatus();
}

}  // namespace warpcall
