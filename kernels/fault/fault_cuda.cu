#include <limits>
#include <string>
#include <variant>

#include "kernels/cuda/launch.h"
#include "kernels/fault/fault.h"

namespace warpcall {
namespace {

__global__ void Trap() { asm volatile("trap;"); }

absl::Status LaunchFault(const Problem&, const Operands&, const LaunchContext& context) {
  return cuda::Launch(Trap, {dim3(1), dim3(1)}, context);
}

size_t FaultWorkspaceBytes(const Problem& problem, const DeviceProperties&) {
  return std::get<std::string>(problem.attributes[0]) == "out_of_memory"
             ? std::numeric_limits<size_t>::max()
             : 0;
}

}  // namespace

std::vector<Implementation> FaultCudaRows() {
  return {{.name = "fault",
           .family = Family::kCuda,
           .device_kind = DeviceKind::kCuda,
           .summary = "for tests only",
           .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
           .supports = SupportsAll,
           .plan = PlanBy(LaunchFault, FaultWorkspaceBytes)}};
}

}  // namespace warpcall
