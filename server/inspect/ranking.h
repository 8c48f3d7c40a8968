// How rows that were measured side by side compare.
#pragma once

#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::inspect {

// Sets the verdicts of the results that ran, all of which were measured. The fastest is the least
// median of those that are stable, or of unstable ones whose intervals lie below that one's. A
// stable one whose interval overlaps with the fastest's is not distinguishable from it, others are
// slower. Where the least median of all is another unstable one's, which may be faster, none is
// called the fastest: what would be is not distinguishable from it. Other unstable ones have no
// verdict, and nothing has where all are unstable.
void Rank(google::protobuf::RepeatedPtrField<v1::BenchmarkResult>* results);

}  // namespace warpcall::inspect
