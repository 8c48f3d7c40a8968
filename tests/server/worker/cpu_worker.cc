#include "tests/server/worker/cpu_worker.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/process.h"

namespace warpcall::testing {

std::optional<int> RunAsCpuWorker(int argc, char** argv, const Registry& kernels) {
  if (argc < 3 || !absl::StartsWith(argv[1], "--worker_device=")) return std::nullopt;
  absl::string_view lanes_flag = argv[2];
  int lanes = 0;
  if (!absl::ConsumePrefix(&lanes_flag, "--lanes_per_device=") ||
      !absl::SimpleAtoi(lanes_flag, &lanes))
    return 2;
  const absl::StatusOr<worker::Ends> ends = worker::JoinServer(lanes);
  if (!ends.ok()) return 1;
  CpuDevice device(1);
  const worker::Served served = {&kernels, &device, [](void*, size_t) { return absl::OkStatus(); },
                                 [] { return std::vector<DeviceErrorCount>(); }};
  return worker::ServeDevice(*ends, served).ok() ? 0 : 1;
}

}  // namespace warpcall::testing
