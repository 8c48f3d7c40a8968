#include "tests/bench/transport_bars.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace warpcall::bench {
namespace {

constexpr Point kLarge = {Transport::kTcp, 1, 16 << 20};
constexpr Point kSmall = {Transport::kTcp, 1, 4096};

Row RateRow(const Contender& contender, double requests_per_second) {
  Row row = {kLarge, contender, {}};
  row.figures.requests_per_second = requests_per_second;
  return row;
}

Row DelayRow(const Contender& contender, double p50_us) {
  Row row = {kSmall, contender, {}};
  row.figures.p50_us = p50_us;
  return row;
}

// The bar whose text begins with `begin` and holds `part`.
Bar FindBar(const std::vector<Bar>& bars, const std::string& begin, const std::string& part) {
  for (const Bar& bar : bars)
    if (absl::StartsWith(bar.text, begin) && absl::StrContains(bar.text, part)) return bar;
  ADD_FAILURE() << "no bar begins with " << begin << " and holds " << part;
  return {};
}

TEST(JudgeBars, ComparesWithTheBetterEcho) {
  Results results;
  results.Add(RateRow({ContenderKind::kEcho}, 80));
  results.Add(RateRow({ContenderKind::kEchoDefaults}, 100));
  results.Add(RateRow({ContenderKind::kRaw, "identity"}, 74));
  const Bar bar = FindBar(JudgeBars(results, false), "identity, 16 MiB", "ByteBuffer");
  EXPECT_EQ(bar.met, std::optional<bool>(false));
  EXPECT_EQ(bar.found, "0.74");
}

TEST(JudgeBars, ComparesWithTheProtobufEcho) {
  Results results;
  results.Add(RateRow({ContenderKind::kProtobuf}, 29));
  results.Add(RateRow({ContenderKind::kRaw, "identity"}, 74));
  const Bar bar = FindBar(JudgeBars(results, false), "identity, 16 MiB", "protobuf");
  EXPECT_EQ(bar.met, std::optional<bool>(true));
}

TEST(JudgeBars, SmallRequestsAreComparedByDifference) {
  Results results;
  results.Add(DelayRow({ContenderKind::kEcho}, 50));
  results.Add(DelayRow({ContenderKind::kEchoDefaults}, 44));
  results.Add(DelayRow({ContenderKind::kRaw, "identity"}, 69));
  EXPECT_EQ(FindBar(JudgeBars(results, false), "identity, 4 KiB, 1 ", "p50").met,
            std::optional<bool>(true));
  results = {};
  results.Add(DelayRow({ContenderKind::kEcho}, 43));
  results.Add(DelayRow({ContenderKind::kRaw, "identity"}, 69));
  EXPECT_EQ(FindBar(JudgeBars(results, false), "identity, 4 KiB, 1 ", "p50").met,
            std::optional<bool>(false));
}

TEST(JudgeBars, WhatWasNotMeasuredIsNotJudged) {
  Results results;
  results.Add(RateRow({ContenderKind::kRaw, "identity"}, 74));
  for (const Bar& bar : JudgeBars(results, true)) {
    EXPECT_FALSE(bar.met.has_value()) << bar.text;
    EXPECT_EQ(bar.found, "not measured");
  }
}

TEST(JudgeBars, GeluIsHeldToThemOnAGpuOnly) {
  const auto is_gelu = [](const Bar& bar) { return absl::StartsWith(bar.text, "gelu"); };
  EXPECT_THAT(JudgeBars({}, false), ::testing::Each(::testing::Not(::testing::Truly(is_gelu))));
  EXPECT_THAT(JudgeBars({}, true), ::testing::Contains(::testing::Truly(is_gelu)).Times(2));
}

}  // namespace
}  // namespace warpcall::bench
