// One element at a time, as the unfused chain would have its only pass.
#include "kernels/cpu/thread_pool.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"

namespace warpcall::identity {
namespace {

constexpr int64_t kGrain = 32 * 1024;  // elements

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    cpu::WorkersOf(context).ParallelFor(problem.inputs[0].elements(), kGrain,
                                        [&](int64_t begin, int64_t end) {
                                          for (int64_t i = begin; i < end; ++i) y[i] = x[i];
                                        });
  });
  return absl::OkStatus();
}

}  // namespace

Implementation ElementLoopRow() {
  return {.name = "element_loop",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCpu,
          .summary = "a loop that copies one element at a time",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::identity
