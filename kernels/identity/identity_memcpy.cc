// The C library's memcpy, one piece per thread at a time.
#include <cstring>

#include "kernels/cpu/thread_pool.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"

namespace warpcall::identity {
namespace {

// Below this one core copies faster than a second one wakes (some 10 us at about 10 GB/s).
constexpr int64_t kGrainBytes = 128 * 1024;

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const char* const x = static_cast<const char*>(operands.inputs[0]);
  char* const y = static_cast<char*>(operands.outputs[0]);
  cpu::WorkersOf(context).ParallelFor(
      static_cast<int64_t>(problem.inputs[0].bytes()), kGrainBytes,
      [&](int64_t begin, int64_t end) { std::memcpy(y + begin, x + begin, end - begin); });
  return absl::OkStatus();
}

}  // namespace

Implementation ParallelCopyRow() {
  return {.name = "parallel_copy",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "memcpy of pieces, all threads",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::identity
