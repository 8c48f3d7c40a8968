// A GPU's multiply-adds at their best: wgmma for what its tensor cores do, fma for float32.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/multiply_adds.h"

namespace warpcall::cuda {

// A MultiplyAddsSource: some 2 ms of work. Random operands, never zeros, which a GPU multiplies at
// less power and so faster. UNIMPLEMENTED for types other than float32 on a GPU other than of
// compute capability 9.0, and in a build without its architecture 90a.
absl::StatusOr<MultiplyAdds> MultiplyAddsOn(Arithmetic arithmetic, const DeviceProperties& device);

}  // namespace warpcall::cuda
