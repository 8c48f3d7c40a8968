// How rows that were measured side by side compare.
#pragma once

#include "absl/types/span.h"
#include "server/inspect/benchmark.h"

namespace warpcall::inspect {

// Sets the verdicts of results that are OK, all of which were measured: of those that are not
// unstable, the least median is the fastest, unless an unstable one is faster beyond doubt, its
// interval below that one's; one whose interval overlaps with the fastest's is not distinguishable
// from it. Other unstable ones have no verdict, and nothing has where all are unstable.
void Rank(absl::Span<BenchmarkResult* const> results);

}  // namespace warpcall::inspect
