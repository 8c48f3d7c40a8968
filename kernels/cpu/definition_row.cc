#include "kernels/cpu/definition_row.h"

#include <algorithm>
#include <iterator>

#include "kernels/common/round.h"
#include "kernels/common/saturate.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall::cpu {
namespace {

// Work that pays for waking another thread: 4096 elements of gelu, at some 20 ns each.
constexpr int64_t kGrainFlops = 36 * 1024;

absl::Status Launch(const Op& op, const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  WARPCALL_DCHECK(op.definition != nullptr, op.name);
  WARPCALL_DCHECK(operands.inputs.size() == problem.inputs.size(), op.name);
  const Definition& definition = *op.definition;
  const int64_t slices = definition.slices(problem);
  if (slices == 0) return absl::OkStatus();
  const int64_t slice_flops = std::max<int64_t>(1, op.work(problem).flops / slices);
  DispatchDataType(problem.outputs[0].data_type, [&]<typename T>(T) {
    T* const out = static_cast<T*>(operands.outputs[0]);
    const auto store = [&](int64_t index) {
      const Slice slice = definition.slice(problem, index);
      int64_t at = slice.first;
      const auto take = [&](absl::Span<const double> values) {
        for (const double value : values) {
          out[at] = FromDouble<T>(value);
          at += slice.stride;
        }
      };
      definition.evaluate(problem, operands, index, TakeValues(take, context.stop));
    };
    WorkersOf(context).ParallelFor(slices, CeilDivide(kGrainFlops, slice_flops),
                                   [&](int64_t begin, int64_t end) {
                                     for (int64_t index = begin; index < end; ++index) store(index);
                                   });
  });
  return absl::OkStatus();
}

}  // namespace

Implementation DefinitionRow(const Op& op, const char* file) {
  return {.name = "float64",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "the definition in float64",
          .data_types = {std::begin(kDataTypes), std::end(kDataTypes)},
          .supports = SupportsAll,
          .plan = PlanBy([&op](const Problem& problem, const Operands& operands,
                               const LaunchContext& context) {
            return Launch(op, problem, operands, context);
          }),
          .file = file};
}

}  // namespace warpcall::cpu
