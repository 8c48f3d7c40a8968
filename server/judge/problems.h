// The problems that a candidate is judged by where its author names none.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device_properties.h"
#include "kernels/manifest/kernel_manifest.h"
#include "kernels/op.h"

namespace warpcall::judge {

// So many at least, and so many beside the examples, unless the manifest takes fewer.
inline constexpr int kProblems = 7;
inline constexpr int kDrawnMin = 3;
inline constexpr int kTries = 10'000;

// In the order in which they are judged. All fit the manifest's `requires` on the device, in each
// of its types in turn: its examples, and others around these and around the op's own cases, of
// sizes that nobody can know before. Some are odd. UNIMPLEMENTED if kTries tries find no problem.
absl::StatusOr<std::vector<Problem>> DrawProblems(const manifest::KernelManifest& manifest,
                                                  const DeviceProperties& device, uint64_t seed);

}  // namespace warpcall::judge
