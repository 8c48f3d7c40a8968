// Runs rows one at a time on a device, from and to host memory.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/op.h"
#include "server/runtime/device.h"

namespace warpcall::self_test {

// Used by one thread. The device outlives it.
class TrialRunner {
 public:
  // The calling thread becomes the GPU's, as by Stream::BindThread.
  static absl::StatusOr<std::unique_ptr<TrialRunner>> Create(Device* device);

  // Outputs begin as `host` has them. On the CPU the row works on `host` itself; elsewhere its
  // operands are copied to the device and back.
  absl::Status Run(const Implementation& row, const Problem& problem, const Operands& host);
  // Times of the last Run that was OK, by the device's clock.
  const StreamTimes& times() const { return times_; }

  Device* device() const { return device_; }

 private:
  TrialRunner(Device* device, std::unique_ptr<Stream> stream)
      : device_(device), stream_(std::move(stream)) {}

  absl::Status RunOn(const Implementation& row, const Problem& problem, const Operands& operands,
                     const Operands& host);
  absl::Status Copy(const Problem& problem, const Operands& operands, const Operands& host);

  Device* const device_;
  const std::unique_ptr<Stream> stream_;
  StreamTimes times_;
};

}  // namespace warpcall::self_test
