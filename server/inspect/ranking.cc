#include "server/inspect/ranking.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::inspect {
namespace {

std::string Compared(const BenchmarkResult& result, const BenchmarkResult& fastest) {
  if (result.median_low_ns <= fastest.median_high_ns) return "not distinguishable from the fastest";
  const double more = 100 * (result.median_ns / fastest.median_ns - 1);
  return absl::StrCat("slower by ", std::max<int64_t>(1, std::llround(more)), " %");
}

}  // namespace

void Rank(absl::Span<BenchmarkResult* const> results) {
  const BenchmarkResult* fastest = nullptr;
  for (const BenchmarkResult* result : results)
    if (result->status.ok() && !result->unstable &&
        (fastest == nullptr || result->median_ns < fastest->median_ns))
      fastest = result;
  for (BenchmarkResult* result : results) {
    if (!result->status.ok() || result->unstable)
      result->verdict.clear();
    else
      result->verdict = result == fastest ? "fastest" : Compared(*result, *fastest);
  }
}

}  // namespace warpcall::inspect
