// One element at a time, all threads.
#include "kernels/common/round.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "proto/common/dispatch.h"
#include "relu.h"

namespace warpcall::relu {
namespace {

constexpr int64_t kGrain = 32 * 1024;  // elements: some 10 us

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  DispatchDataType(problem.inputs[0].data_type, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(operands.inputs[0]);
    T* const y = static_cast<T*>(operands.outputs[0]);
    cpu::WorkersOf(context).ParallelFor(problem.inputs[0].elements(), kGrain,
                                        [&](int64_t begin, int64_t end) {
                                          for (int64_t i = begin; i < end; ++i)
                                            y[i] = ToFloat(x[i]) <= 0 ? T{} : x[i];
                                        });
  });
  return absl::OkStatus();
}

}  // namespace

Implementation ElementLoopRow() {
  return {.name = "element_loop",
          .family = Family::kManual,
          .device_kind = DeviceKind::kCpu,
          .summary = "a loop over elements, all threads",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::relu
