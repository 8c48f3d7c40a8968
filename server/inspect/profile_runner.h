// Repeats the subject of a profile: a request on its whole path, or a kernel by itself.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/inspect/profile.h"
#include "server/inspect/profile_rows.h"
#include "server/runtime/device.h"

namespace warpcall::inspect {

// Used by one thread. Owns the device.
class ProfileRunner {
 public:
  virtual ~ProfileRunner() = default;

  // Returns when the device is done.
  virtual absl::Status Run() = 0;
  // Launches each kernel of a run once.
  virtual absl::Status RunForCounters() = 0;

  const ProfiledRun& last() const { return last_; }

 protected:
  ProfiledRun last_;
};

// Sends the plan's request through an engine, one run after the other. Both runners keep a
// reference to the plan.
absl::StatusOr<std::unique_ptr<ProfileRunner>> NewRequestRunner(const Registry& registry,
                                                                std::unique_ptr<Device> device,
                                                                const ProfilePlan& plan);
// Launches the plan's row on device memory, as Benchmark does. The calling thread becomes the
// device's.
absl::StatusOr<std::unique_ptr<ProfileRunner>> NewKernelRunner(std::unique_ptr<Device> device,
                                                               const ProfilePlan& plan);

}  // namespace warpcall::inspect
