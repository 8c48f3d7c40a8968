// For builds without the CUDA device.
#include "tests/kernels/run_row.h"

namespace warpcall::testing {

const DeviceProperties* TestGpuProperties() { return nullptr; }

absl::StatusOr<std::vector<Memory>> RunRowOnGpu(const RowToRun&, const Problem&,
                                                absl::Span<const Memory>, uint8_t) {
  return absl::FailedPreconditionError("this build has no CUDA device");
}

void AddGpuRows(Registry*) {}

}  // namespace warpcall::testing
