#include "client/cpp/calls/benchmark.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/codec/inspect_codec.h"
#include "proto/common/pinned_name.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Moves the verdicts to their results. Those of a server that sends them with each result stay.
void SetVerdicts(BenchmarkReport* report) {
  const auto verdicts = std::exchange(*report->mutable_verdicts(), {});
  if (verdicts.empty()) return;
  for (BenchmarkResult& result : *report->mutable_results()) {
    auto verdict = verdicts.find(PinnedName(result));
    if (verdict == verdicts.end()) verdict = verdicts.find(result.implementation());
    result.set_verdict(verdict == verdicts.end() ? "" : verdict->second);
  }
}

// Results came with their share of the ceiling as it was known then.
void SetFractions(BenchmarkReport* report) {
  const double reads = report->read_ceiling_bytes_per_second();
  const double ceiling = reads > 0 ? reads : report->ceiling_bytes_per_second();
  if (!(ceiling > 0)) return;
  for (BenchmarkResult& result : *report->mutable_results())
    result.set_fraction_of_ceiling(result.bytes_per_second() / ceiling);
}

}  // namespace

absl::Status AddBenchmark(Fragments response, const BenchmarkWatch& watch,
                          BenchmarkReport* report) {
  ASSIGN_OR_RETURN(BenchmarkReport news, DecodeBenchmark(response));
  RETURN_IF_ERROR(CheckResultCount(report->results_size() + news.results_size()));
  std::set<std::string> names;
  for (const BenchmarkResult& earlier : report->results()) names.insert(PinnedName(earlier));
  for (const BenchmarkResult& result : news.results())
    if (!names.insert(PinnedName(result)).second)
      return BadResponse(absl::StrCat("a second result of ", PinnedName(result)));
  // Facts about the whole run may come with any response; the last response has all of them.
  if (news.stamp().started_unix_ns() > 0) report->clear_stamp();
  report->MergeFrom(news);
  SetVerdicts(report);
  SetFractions(report);
  return watch.progress == nullptr ? absl::OkStatus() : watch.progress(*report);
}

}  // namespace warpcall::client
