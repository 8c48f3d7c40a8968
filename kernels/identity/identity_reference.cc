// The truth: no arithmetic, so the row copies bytes and the definition only widens them.
#include <algorithm>
#include <cstring>

#include "kernels/common/element_slices.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"

namespace warpcall::identity {
namespace {

double Same(double x) { return x; }

// Some milliseconds.
constexpr size_t kBytesPerLook = size_t{16} << 20;

absl::Status Launch(const Problem& problem, const Operands& operands,
                    const LaunchContext& context) {
  const char* const x = static_cast<const char*>(operands.inputs[0]);
  char* const y = static_cast<char*>(operands.outputs[0]);
  const size_t bytes = problem.inputs[0].bytes();
  for (size_t at = 0; at < bytes; at += kBytesPerLook) {
    if (at > 0 && IsSet(context.stop)) break;
    std::memcpy(y + at, x + at, std::min(kBytesPerLook, bytes - at));
  }
  return absl::OkStatus();
}

}  // namespace

const Definition kDefinition = {
    .slices = ElementSlices, .slice = ElementSlice, .evaluate = EvaluateElements<Same>};

Implementation PlainCopyRow() {
  return {.name = "plain_copy",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "memcpy, one thread",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(Launch)};
}

}  // namespace warpcall::identity
