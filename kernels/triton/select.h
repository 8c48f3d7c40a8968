// Selects the compiled kernel of an op that takes a problem: pure functions of a manifest's data.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device_properties.h"
#include "kernels/triton/manifest.h"

namespace warpcall::triton {

// A problem as an implementation describes it to the selection.
struct Order {
  // Values that the kernel's traits of these names must have.
  absl::InlinedVector<std::pair<absl::string_view, absl::string_view>, 2> traits;
  // The kernels' integer arguments and the names given to expressions, with their values.
  absl::InlinedVector<std::pair<absl::string_view, int64_t>, 12> integers;
  // The kernels' float arguments, by name.
  absl::InlinedVector<std::pair<absl::string_view, float>, 2> floats = {};
  // Sizes by which choices are compared, each at least 1.
  absl::InlinedVector<int64_t, 3> sizes;
};

// Returns the value of a name. REQUIRES: the order has it.
int64_t ValueOf(const Order& order, absl::string_view name);
float FloatOf(const Order& order, absl::string_view name);

struct Blocks {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

// The image that runs on the device: compiled for its compute capability or, before Hopper, for an
// earlier one of the same generation. Null if there is none.
const Image* ImageFor(const CompiledKernel& kernel, int32_t architecture);

// The number of blocks that the kernel takes for the order. INVALID_ARGUMENT says why the kernel
// cannot take the order, UNIMPLEMENTED that the kernel cannot run on the device. REQUIRES: the
// order has all names that the kernel uses.
absl::StatusOr<Blocks> BlocksFor(const CompiledKernel& kernel, const Order& order,
                                 const DeviceProperties& device);

// OK if a kernel takes the order; otherwise UNIMPLEMENTED with the most general kernel's reason.
absl::Status CheckTaken(const KernelSet& set, const Order& order, const DeviceProperties& device);

// The number of the kernel that takes the order and has the tile of the choice with the nearest
// sizes, by ratio; of the first that takes it if no choice fits. UNIMPLEMENTED as CheckTaken.
absl::StatusOr<int> Choose(const KernelSet& set, const Order& order,
                           const DeviceProperties& device);

}  // namespace warpcall::triton
