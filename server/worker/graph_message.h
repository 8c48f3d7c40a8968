// A graph as bytes, which the server hands to a worker's lane in parts before its first run there.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"

namespace warpcall::worker {

inline constexpr size_t kGraphBytesMax = size_t{1} << 20;

// INTERNAL when it is larger than kGraphBytesMax. REQUIRES: the problem of a graph, whose steps
// have their rows.
absl::StatusOr<std::string> GraphToBytes(const Problem& problem);
// INVALID_ARGUMENT or INTERNAL for what is no graph of the registry's rows.
absl::StatusOr<Problem> GraphFromBytes(absl::string_view bytes, const Registry& registry);

}  // namespace warpcall::worker
