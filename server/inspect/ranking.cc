#include "server/inspect/ranking.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::inspect {
namespace {

constexpr char kAlike[] = "not distinguishable from the fastest";

std::string Compared(const BenchmarkResult& result, const BenchmarkResult& fastest) {
  if (result.median_low_ns <= fastest.median_high_ns) return kAlike;
  const double more = 100 * (result.median_ns / fastest.median_ns - 1);
  return absl::StrCat("slower by ", std::max<int64_t>(1, std::llround(more)), " %");
}

// The least median of the rows that ran and that `among` takes; null: of none.
template <typename Among>
const BenchmarkResult* Fastest(absl::Span<const BenchmarkResult> results, const Among& among) {
  const BenchmarkResult* fastest = nullptr;
  for (const BenchmarkResult& result : results)
    if (result.status.ok() && among(result) &&
        (fastest == nullptr || result.median_ns < fastest->median_ns))
      fastest = &result;
  return fastest;
}

}  // namespace

void Rank(absl::Span<BenchmarkResult> results) {
  const BenchmarkResult* fastest =
      Fastest(results, [](const BenchmarkResult& result) { return !result.unstable; });
  // What is unstable and faster all the same.
  const BenchmarkResult* const unstable =
      Fastest(results, [fastest](const BenchmarkResult& result) {
        return fastest != nullptr && result.median_high_ns < fastest->median_low_ns;
      });
  if (unstable != nullptr) fastest = unstable;
  const BenchmarkResult* const least =
      Fastest(results, [](const BenchmarkResult&) { return true; });
  for (BenchmarkResult& result : results) {
    if (&result == fastest)
      result.verdict = result.median_ns > least->median_ns ? kAlike : "fastest";
    else if (!result.status.ok() || result.unstable)
      result.verdict.clear();
    else
      result.verdict = Compared(result, *fastest);
  }
}

}  // namespace warpcall::inspect
