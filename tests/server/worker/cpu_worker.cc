#include "tests/server/worker/cpu_worker.h"

#include <string>
#include <vector>

#include "server/process/parent.h"
#include "server/process/role.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/worker/process.h"

namespace warpcall::testing {

std::optional<int> RunAsCpuWorker(int argc, char** argv, const Registry& kernels) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || process::FindRole(words.front()) != process::Role::kWorker)
    return std::nullopt;
  const absl::StatusOr<process::RoleFlags> flags =
      process::ParseRoleFlags(process::Role::kWorker, absl::MakeConstSpan(words).subspan(1));
  if (!flags.ok()) return 2;
  process::EndWithStarter();
  const absl::StatusOr<const process::Channel*> parent = process::JoinParent();
  if (!parent.ok()) return 1;
  CpuDevice device(1);
  const worker::Served served = {&kernels, &device, [](void*, size_t) { return absl::OkStatus(); },
                                 [] { return std::vector<DeviceErrorCount>(); }};
  return worker::ServeDevice(worker::InheritedEnds(**parent, static_cast<int>(flags->lanes)),
                             served)
                 .ok()
             ? 0
             : 1;
}

}  // namespace warpcall::testing
