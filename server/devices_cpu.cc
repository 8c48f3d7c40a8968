#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/devices.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall {
namespace {

// What the process may use, which in a container can be less than the machine has.
int UsableThreads() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

void AddKernels(Registry* registry) { AddCpuKernels(registry); }

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const std::string& selection) {
  for (absl::string_view name : absl::StrSplit(selection, ','))
    if (name != "auto" && name != "cpu")
      return absl::NotFoundError(
          absl::StrCat("device \"", name, "\" does not exist; there is: cpu"));
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<CpuDevice>(UsableThreads()));
  return devices;
}

const char* CudaVersion() { return "none"; }

}  // namespace warpcall
