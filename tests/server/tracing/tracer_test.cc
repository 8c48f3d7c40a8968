// Sampling of requests, and records that are neither lost nor kept without end.
#include "server/tracing/tracer.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace warpcall::tracing {
namespace {

constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpanId[] = "b7ad6b7169203331";

Parent ParentThat(bool samples) {
  Parent parent{.trace_id = {}, .span_id = {}, .sampled = samples};
  EXPECT_TRUE(FromHex(kTraceId, &parent.trace_id));
  EXPECT_TRUE(FromHex(kSpanId, &parent.span_id));
  return parent;
}

Record RecordOf(const std::string& id) {
  return {.span = {{1}, NewSpanId(), {}}, .method = "Execute", .request_id = id};
}

TEST(TracerTest, ACallersDecisionIsFollowedWhateverTheRatio) {
  Tracer all(1, 8), none(0, 8);
  EXPECT_FALSE(all.Begin(ParentThat(false)).has_value());
  const auto span = none.Begin(ParentThat(true));
  ASSERT_TRUE(span.has_value());
  EXPECT_EQ(span->trace_id, ParentThat(true).trace_id);
  EXPECT_EQ(span->parent_id, ParentThat(true).span_id);
  EXPECT_NE(span->span_id, ParentThat(true).span_id);
}

TEST(TracerTest, RequestsOfNobodysTraceGoByTheRatioAndHaveIdsOfTheirOwn) {
  Tracer all(1, 8), none(0, 8);
  std::set<TraceId> traces;
  std::set<SpanId> spans;
  for (int i = 0; i < 1000; ++i) {
    const auto span = all.Begin(std::nullopt);
    ASSERT_TRUE(span.has_value());
    EXPECT_FALSE(span->parent_id.has_value());
    traces.insert(span->trace_id);
    spans.insert(span->span_id);
    EXPECT_FALSE(none.Begin(std::nullopt).has_value());
  }
  EXPECT_EQ(traces.size(), 1000u);
  EXPECT_EQ(spans.size(), 1000u);
}

TEST(TracerTest, IdsAreReadByteByByte) {
  EXPECT_EQ(ParentThat(true).span_id, (SpanId{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}));
  SpanId id{};
  EXPECT_FALSE(FromHex(kTraceId, &id));
}

TEST(TracerTest, WhatThereIsNoRoomForIsDroppedAndCounted) {
  Tracer tracer(1, 3);
  for (int i = 0; i < 5; ++i) tracer.Add(RecordOf(absl::StrCat(i)));
  const std::vector<Record> records = tracer.Take(1, absl::InfiniteDuration());
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[2].request_id, "2");
  tracer.CountFailed(2);
  tracer.CountSent(1);
  EXPECT_EQ(tracer.counts().dropped, 2u);
  EXPECT_EQ(tracer.counts().failed, 2u);
  EXPECT_EQ(tracer.counts().sent, 1u);
  tracer.Add(RecordOf("next"));  // there is room again
  EXPECT_EQ(tracer.Take(1, absl::InfiniteDuration()).size(), 1u);
}

TEST(TracerTest, EachRecordOfManyThreadsComesOnceAndStopEndsTheWait) {
  constexpr int kThreads = 4, kRecords = 1000;
  Tracer tracer(1, 8192);
  std::multiset<std::string> taken;
  std::thread taker([&] {
    for (bool more = true; more;) {
      more = !tracer.stopped();
      for (const Record& record : tracer.Take(64, absl::InfiniteDuration()))
        taken.insert(record.request_id);
    }
  });
  std::vector<std::thread> adders;
  for (int thread = 0; thread < kThreads; ++thread)
    adders.emplace_back([&, thread] {
      for (int i = 0; i < kRecords; ++i) tracer.Add(RecordOf(absl::StrCat(thread, " ", i)));
    });
  for (std::thread& adder : adders) adder.join();
  EXPECT_FALSE(tracer.AwaitStop(absl::ZeroDuration()));
  tracer.Stop();
  taker.join();
  EXPECT_EQ(taken.size(), size_t{kThreads * kRecords});
  EXPECT_EQ(std::set<std::string>(taken.begin(), taken.end()).size(), taken.size());
  EXPECT_TRUE(tracer.AwaitStop(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace warpcall::tracing
