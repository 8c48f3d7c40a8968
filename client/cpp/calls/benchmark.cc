#include "client/cpp/calls/benchmark.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/codec/inspect_codec.h"
#include "client/cpp/codec/values.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

// Those of a server that sends verdicts with each result stay.
void SetVerdicts(const std::map<std::string, std::string>& verdicts, BenchmarkReport* report) {
  if (verdicts.empty()) return;
  for (BenchmarkResult& result : report->results) {
    const auto verdict = verdicts.find(result.implementation);
    result.verdict = verdict == verdicts.end() ? "" : verdict->second;
  }
}

// Results came with their share of the ceiling as it was known then.
void SetFractions(BenchmarkReport* report) {
  if (!(report->ceiling_bytes_per_second > 0)) return;
  for (BenchmarkResult& result : report->results)
    result.fraction_of_ceiling = result.bytes_per_second / report->ceiling_bytes_per_second;
}

}  // namespace

absl::StatusOr<std::vector<Piece>> BenchmarkSession::NextMessage() {
  if (std::exchange(sent_, true)) return std::vector<Piece>{};
  return std::vector<Piece>{OwnedPiece(request_)};
}

absl::Status BenchmarkSession::HandleMessage(Fragments message) {
  begun_ = true;
  ASSIGN_OR_RETURN(BenchmarkPart part, DecodeBenchmarkPart(message));
  BenchmarkReport& news = part.news;
  RETURN_IF_ERROR(CheckResultCount(report_->results.size() + news.results.size()));
  for (BenchmarkResult& result : news.results) {
    const auto same = [&](const BenchmarkResult& earlier) {
      return earlier.implementation == result.implementation;
    };
    if (std::any_of(report_->results.begin(), report_->results.end(), same))
      return BadResponse(absl::StrCat("a second result of ", result.implementation));
    report_->results.push_back(std::move(result));
  }
  // What is of the whole run may come with any response; the last one has all of it.
  if (!news.device.empty()) report_->device = std::move(news.device);
  if (news.ceiling_bytes_per_second > 0)
    report_->ceiling_bytes_per_second = news.ceiling_bytes_per_second;
  if (news.flops_ceiling > 0) report_->flops_ceiling = news.flops_ceiling;
  if (news.stamp.started_unix_ns > 0) report_->stamp = std::move(news.stamp);
  SetVerdicts(part.verdicts, report_);
  SetFractions(report_);
  return watch_.progress == nullptr ? absl::OkStatus() : watch_.progress(*report_);
}

}  // namespace warpcall::client
