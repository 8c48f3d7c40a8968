// Launches one row once, for NVIDIA's tools to look at:
//   ncu warpcall_row_launcher gelu vectorized float32 67108864
#include <cstdio>
#include <string>
#include <vector>

#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cuda_device.h"
#include "tests/server/runtime/launched_row.h"

namespace warpcall::testing {
namespace {

absl::Status LaunchOnce(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const RowRequest request, ParseRowRequest(words));
  std::unique_ptr<CudaDevice> device;
  ASSIGN_OR_RETURN(device, CudaDevice::Open(0));
  std::unique_ptr<LaunchedRow> row;
  ASSIGN_OR_RETURN(row, LaunchedRow::Create(device.get(), request));
  RETURN_IF_ERROR(row->Launch());
  return row->Synchronize();
}

}  // namespace
}  // namespace warpcall::testing

int main(int argc, char** argv) {
  const absl::Status status = warpcall::testing::LaunchOnce({argv + 1, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
