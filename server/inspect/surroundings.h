// Detects other work on the machine during a measurement.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device_properties.h"
#include "server/inspect/machine.h"

namespace warpcall::inspect {

// Largest share of a measurement that other work may take. Benchmark: a row is unstable if more of
// its samples were disturbed. Profile: it is inconclusive if others ran for more of the time that
// its threads were ready to run.
inline constexpr double kOtherWorkShareMax = 0.25;

class Surroundings {
 public:
  virtual ~Surroundings() = default;
  // Called before a slice of measuring: waits until the machine is quiet, if that may be soon.
  // Returns whether it is quiet.
  virtual bool AwaitQuiet() = 0;
  // Called before each sample: earlier disturbances do not count.
  virtual void Begin() = 0;
  // Called after a sample that took `sample_ns` on the device. True if other work has had the
  // device or its threads since Begin, to an extent that the sample shows.
  virtual bool Disturbed(int64_t sample_ns) = 0;
  // For a GPU, after Disturbed: true if the server has computed within the last second, even a
  // little. While the server waits for its own kernel it does not compute, so a shorter time would
  // say nothing.
  virtual bool ServerAtWork() const = 0;
};

// The machine is quiet if the server hardly computes and, for a CPU device, no thread but the
// caller's is ready to run. The waits are 50 ms at most, and a second in all.
std::unique_ptr<Surroundings> NewSurroundings(const DeviceProperties& device,
                                              std::unique_ptr<Machine> machine);

}  // namespace warpcall::inspect
