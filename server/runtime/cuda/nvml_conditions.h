// The conditions under which a GPU works, as NVML sees them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/runtime/conditions.h"
#include "server/runtime/cuda/nvml_api.h"

namespace warpcall::nvml {

class GpuConditions final : public ConditionReader {
 public:
  // Takes `api`, and initialises it for as long as this lives.
  static absl::StatusOr<std::unique_ptr<GpuConditions>> Open(const Api& api,
                                                             const std::string& pci_bus_id);
  ~GpuConditions() override;
  GpuConditions(const GpuConditions&) = delete;
  GpuConditions& operator=(const GpuConditions&) = delete;

  DeviceConditions Read() override;

 private:
  explicit GpuConditions(const Api& api) : api_(api) {}

  const Api api_;
  Device device_ = nullptr;
};

}  // namespace warpcall::nvml
