// What else uses the machine while something is measured.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device_properties.h"
#include "server/inspect/machine.h"

namespace warpcall::inspect {

// How much of a measurement other work may take: where more of a row's samples were disturbed,
// Benchmark's row is unstable; where others ran for more of the time that a Profile's threads were
// ready to run, the Profile is inconclusive.
inline constexpr double kOtherWorkShareMax = 0.25;

class Surroundings {
 public:
  virtual ~Surroundings() = default;
  // Called before a slice of measuring: waits until the machine is quiet, if that may be soon.
  // Whether it is.
  virtual bool AwaitQuiet() = 0;
  // Called before each sample: what was until now does not count.
  virtual void Begin() = 0;
  // Called after it, when it took so long on the device: whether something else has had the device
  // or its threads since Begin in a way that the sample tells of.
  virtual bool Disturbed(int64_t sample_ns) = 0;
  // After Disturbed, of a GPU: whether the server has computed within the last second, be it
  // little. It waits for a kernel of its own without computing, so less than that would say
  // nothing.
  virtual bool ServerAtWork() const = 0;
};

// Quiet is a machine on which the server hardly computes, and, for a CPU device, no thread but the
// caller's is ready to run. The waits are 50 ms at most, and a second in all.
std::unique_ptr<Surroundings> NewSurroundings(const DeviceProperties& device,
                                              std::unique_ptr<Machine> machine);

}  // namespace warpcall::inspect
