#include "server/inspect/ranking.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::inspect {
namespace {

constexpr char kAlike[] = "not distinguishable from the fastest";

using Results = google::protobuf::RepeatedPtrField<v1::BenchmarkResult>;

bool Ran(const v1::BenchmarkResult& result) { return result.error().empty(); }

std::string Compared(const v1::BenchmarkResult& result, const v1::BenchmarkResult& fastest) {
  if (result.median_low_ns() <= fastest.median_high_ns()) return kAlike;
  const double more = 100 * (result.median_ns() / fastest.median_ns() - 1);
  return absl::StrCat("slower by ", std::max<int64_t>(1, std::llround(more)), " %");
}

// The least median of the rows that ran and satisfy `among`; null if there are none.
template <typename Among>
const v1::BenchmarkResult* Fastest(const Results& results, const Among& among) {
  const v1::BenchmarkResult* fastest = nullptr;
  for (const v1::BenchmarkResult& result : results)
    if (Ran(result) && among(result) &&
        (fastest == nullptr || result.median_ns() < fastest->median_ns()))
      fastest = &result;
  return fastest;
}

}  // namespace

void Rank(Results* results) {
  const v1::BenchmarkResult* fastest =
      Fastest(*results, [](const v1::BenchmarkResult& result) { return !result.unstable(); });
  // An unstable result that is faster all the same.
  const v1::BenchmarkResult* const unstable =
      Fastest(*results, [fastest](const v1::BenchmarkResult& result) {
        return fastest != nullptr && result.median_high_ns() < fastest->median_low_ns();
      });
  if (unstable != nullptr) fastest = unstable;
  const v1::BenchmarkResult* const least =
      Fastest(*results, [](const v1::BenchmarkResult&) { return true; });
  for (v1::BenchmarkResult& result : *results) {
    if (&result == fastest)
      result.set_verdict(result.median_ns() > least->median_ns() ? kAlike : "fastest");
    else if (!Ran(result) || result.unstable())
      result.clear_verdict();
    else
      result.set_verdict(Compared(result, *fastest));
  }
}

}  // namespace warpcall::inspect
