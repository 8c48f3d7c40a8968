// The requests of an entry, ready to be sent, and what their answers must look like.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/load/mix.h"
#include "warpcall/client.h"

namespace warpcall::cli {

struct LoadEntryCalls {
  LoadEntry entry;
  // Calls that differ only in the inputs' data. Not empty.
  std::vector<client::Call> calls;
};

// Calls with random inputs, each of its own memory, from `seed`: finite, of magnitudes from 1/16 to
// 1 (so that none is zero or subnormal in any type), positive or negative. As many as fit into 64
// MiB, but from 2 to 8. INVALID_ARGUMENT for attributes that do not have the form that `kernels`
// says; RESOURCE_EXHAUSTED when there is no memory.
absl::StatusOr<LoadEntryCalls> MakeCalls(const LoadEntry& entry,
                                         absl::Span<const client::KernelInfo> kernels,
                                         uint64_t seed);

// Returns DATA_LOSS, a code that servers never send, unless the outputs have the types and shapes
// of the public contract and, for identity, the input's bytes. Kernels outside the contract only
// need an output.
absl::Status CheckAnswer(const client::Call& call, const client::Result& result);

}  // namespace warpcall::cli
