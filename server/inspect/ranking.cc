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

// The least median of the rows that ran and that `among` takes; null: of none.
template <typename Among>
const BenchmarkResult* Fastest(absl::Span<BenchmarkResult* const> results, const Among& among) {
  const BenchmarkResult* fastest = nullptr;
  for (const BenchmarkResult* result : results)
    if (result->status.ok() && among(*result) &&
        (fastest == nullptr || result->median_ns < fastest->median_ns))
      fastest = result;
  return fastest;
}

}  // namespace

void Rank(absl::Span<BenchmarkResult* const> results) {
  const BenchmarkResult* fastest =
      Fastest(results, [](const BenchmarkResult& result) { return !result.unstable; });
  // What is unstable and faster all the same.
  const BenchmarkResult* const unstable =
      Fastest(results, [fastest](const BenchmarkResult& result) {
        return fastest != nullptr && result.median_high_ns < fastest->median_low_ns;
      });
  if (unstable != nullptr) fastest = unstable;
  for (BenchmarkResult* result : results) {
    if (result == fastest)
      result->verdict = "fastest";
    else if (!result->status.ok() || result->unstable)
      result->verdict.clear();
    else
      result->verdict = Compared(*result, *fastest);
  }
}

}  // namespace warpcall::inspect
