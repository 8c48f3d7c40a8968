// How rows that were measured side by side compare.
#pragma once

#include "absl/types/span.h"
#include "server/inspect/benchmark.h"

namespace warpcall::inspect {

// Sets the verdicts of results that are OK, all of which were measured: of those that are not
// unstable, the least median is the fastest; one whose interval overlaps with that one's is not
// distinguishable from it.
void Rank(absl::Span<BenchmarkResult* const> results);

}  // namespace warpcall::inspect
