// Compares rows that were measured side by side.
#pragma once

#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::inspect {

// Sets the verdicts of the results that ran. The fastest is the least median of the stable results,
// or of unstable ones whose intervals lie below that one's. A stable result is not distinguishable
// from the fastest if their intervals overlap, and slower otherwise. If another unstable result has
// the least median of all, and so may be faster, none is called the fastest: the candidate is then
// not distinguishable from it. Other unstable results have no verdict; no result has one if all are
// unstable.
void Rank(google::protobuf::RepeatedPtrField<v1::BenchmarkResult>* results);

}  // namespace warpcall::inspect
