// A copy in vectors of 16 bytes. No bits are looked at: the tensor is one of 2-byte units, into
// which every type divides.
#include <cstdint>

#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/identity/identity.h"

namespace warpcall::identity {
namespace {

using Unit = uint16_t;

struct Keep {
  template <int kWidth>
  __device__ cuda::Vector<Unit, kWidth> operator()(const cuda::Vector<Unit, kWidth>& vector) const {
    return vector;
  }
};

__global__ void __launch_bounds__(cuda::kMapThreads) Copy(const Unit* x, Unit* y, int64_t count) {
  cuda::MapTile(x, y, count, Keep());
}

int64_t Units(const Problem& problem) {
  return static_cast<int64_t>(problem.inputs[0].bytes() / sizeof(Unit));
}

cuda::Grid GridFor(const Problem& problem) {
  return cuda::LinearGrid(Units(problem), cuda::kMapTileElements<Unit>, cuda::kMapThreads);
}

absl::Status Supports(const Problem& problem, const DeviceProperties&) {
  const int64_t elements_each = cuda::kMapTileElements<Unit> * static_cast<int64_t>(sizeof(Unit)) /
                                static_cast<int64_t>(ElementBytes(problem.inputs[0].data_type));
  return cuda::CheckLinearGrid(problem.inputs[0].elements(), elements_each, "vector_copy");
}

absl::StatusOr<PlanPtr> MakeCopyPlan(const Problem& problem, const PlanContext& context) {
  const int64_t units = Units(problem);
  if (units == 0) return PlanNothing();
  const cuda::Grid grid =
      cuda::EarlyGridOf(reinterpret_cast<const void*>(&Copy), GridFor(problem), *context.device);
  return cuda::NewKernelPlan({.may_be_replayed = true}, {Copy, grid}, context,
                             [grid, units](const Operands& operands, const LaunchContext& launch) {
                               return cuda::Launch(Copy, grid, launch,
                                                   static_cast<const Unit*>(operands.inputs[0]),
                                                   static_cast<Unit*>(operands.outputs[0]), units);
                             });
}

}  // namespace

Implementation VectorCopyRow() {
  return {.name = "vector_copy",
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "a copy in vectors of 16 bytes",
          .data_types = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16},
          .supports = Supports,
          .suits_host_memory = true,
          .plan = MakeCopyPlan};
}

}  // namespace warpcall::identity
