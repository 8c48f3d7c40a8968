// Which of the kernels compiled for an op takes a problem: pure functions of what a manifest says.
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

// What a row tells of a problem.
struct Order {
  // What a kernel's traits of these names must be.
  absl::InlinedVector<std::pair<absl::string_view, absl::string_view>, 2> traits;
  // The kernels' integer arguments, and what is given for expressions, by name.
  absl::InlinedVector<NamedInteger, 12> integers;
  // The kernels' float arguments, by name.
  absl::InlinedVector<std::pair<absl::string_view, float>, 2> floats = {};
  // What choices compare, each at least 1.
  absl::InlinedVector<int64_t, 3> sizes;
};

// The value of a name. REQUIRES: it is there.
int64_t ValueOf(const Order& order, absl::string_view name);
float FloatOf(const Order& order, absl::string_view name);

struct Blocks {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

// The one that runs on such a device: compiled for its compute capability or, before Hopper, for an
// earlier one of the same generation. Null when there is none.
const Image* ImageFor(const CompiledKernel& kernel, int32_t architecture);

// How many blocks the kernel takes for it. INVALID_ARGUMENT says why it cannot take it,
// UNIMPLEMENTED that it cannot run on the device. REQUIRES: the order has all names that the kernel
// asks for.
absl::StatusOr<Blocks> BlocksFor(const CompiledKernel& kernel, const Order& order,
                                 const DeviceProperties& device);

// OK when one of the kernels takes it; UNIMPLEMENTED with the most general one's reason.
absl::Status CheckTaken(const KernelSet& set, const Order& order, const DeviceProperties& device);

// The number of the kernel that takes it and has the tile of the choice whose sizes are nearest, by
// their ratios; the first that takes it when no choice has one. UNIMPLEMENTED as above.
absl::StatusOr<int> Choose(const KernelSet& set, const Order& order,
                           const DeviceProperties& device);

}  // namespace warpcall::triton
