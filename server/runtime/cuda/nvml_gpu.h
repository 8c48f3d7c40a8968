// One GPU as NVML sees it.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "server/engine/gpu_reading.h"
#include "server/runtime/cuda/nvml_api.h"

namespace warpcall::nvml {

// Used by one thread. A failure is logged the first time. A reading that the GPU does not support
// is not requested again.
class Gpu {
 public:
  // `api` is initialised and outlives this. A GPU that NVML does not know has empty readings.
  Gpu(const Api& api, std::string name, const std::string& pci_bus_id);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Null: not known.
  Device device() const { return device_; }
  // Has the ratios of the time since the last call; none on the first. Without Xid errors.
  GpuReading Read();
  // Registers `events` for the GPU's Xid errors.
  void Register(EventSet events);

 private:
  // True for success; otherwise logs it, once for each `what`.
  bool Succeeded(Return result, absl::string_view what);
  // The value of a call that fills in an unsigned, or nothing.
  template <typename Call>
  std::optional<double> ReadUnsigned(absl::string_view what, Call call);
  void ReadUuid();
  void StartSampling();
  void ReadClocks(GpuReading* reading);
  void ReadRatios(GpuReading* reading);

  const Api& api_;
  const std::string name_;
  Device device_ = nullptr;
  std::string uuid_;         // empty: not known
  bool samples_ = false;     // GPM works here
  bool has_sample_ = false;  // previous_ has been taken
  GpmSample previous_ = nullptr;
  GpmSample current_ = nullptr;
  std::unique_ptr<GpmMetricsGet> metrics_;  // 20 KiB
  std::set<std::string, std::less<>> logged_;
  std::set<std::string, std::less<>> unsupported_;
};

}  // namespace warpcall::nvml
