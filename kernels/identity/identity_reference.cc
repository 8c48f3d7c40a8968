// The truth: no arithmetic, so no float64 either.
#include <cstring>

#include "kernels/identity/identity.h"

namespace warpcall::identity {
namespace {

absl::Status Launch(const Problem& problem, const Operands& operands, const LaunchContext&) {
  const size_t bytes = problem.inputs[0].bytes();
  if (bytes > 0) std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
  return absl::OkStatus();
}

}  // namespace

Implementation PlainCopyRow() {
  return {.name = "plain_copy",
          .family = Family::kReference,
          .device_kind = DeviceKind::kCpu,
          .summary = "one memcpy",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = SupportsAll,
          .workspace_bytes = nullptr,
          .launch = Launch,
          .shape = nullptr};
}

}  // namespace warpcall::identity
