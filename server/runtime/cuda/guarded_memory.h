// Device memory behind which nothing is mapped: a kernel that reads or writes past its end faults.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "server/runtime/device.h"

namespace warpcall {

// Whole pages of the current device, `ordinal`: at least `bytes`, up to data() + bytes() of the
// buffer. FAILED_PRECONDITION where the driver maps no memory, RESOURCE_EXHAUSTED where there is
// none.
absl::StatusOr<Buffer> AllocateGuardedMemory(int ordinal, size_t bytes);

}  // namespace warpcall
