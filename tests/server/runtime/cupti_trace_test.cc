// A trace from Start to Stop, with a CUPTI that hands out the records that the test wrote.
#include "server/runtime/cuda/cupti_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <set>
#include <string>

#include "tests/server/runtime/cupti_text.h"

namespace warpcall::cupti {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The functions take no argument of ours, so there is one at a time.
struct FakeTrace {
  std::set<CUpti_ActivityKind> enabled;
  CUptiResult clock_result = CUPTI_SUCCESS;
  uint64_t clock_behind_ns = 0;  // CUPTI's own clock, of CLOCK_MONOTONIC
  CUptiResult memset_result = CUPTI_SUCCESS;
  CUptiResult flush_result = CUPTI_SUCCESS;
  bool clock_came_first = false;
  size_t dropped = 0;
  std::vector<CUpti_ActivityMemset4> records;  // brought by the next flush, two to a buffer
  CUpti_BuffersCallbackRequestFunc give = nullptr;
  CUpti_BuffersCallbackCompleteFunc take = nullptr;
};
FakeTrace* fake_trace = nullptr;

CUptiResult RegisterClock(CUpti_TimestampCallbackFunc now) {
  fake_trace->clock_came_first = fake_trace->enabled.empty() && now() > 0;
  return fake_trace->clock_result;
}

CUptiResult Timestamp(uint64_t* time) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *time = static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec) -
          fake_trace->clock_behind_ns;
  return CUPTI_SUCCESS;
}

CUptiResult RegisterBuffers(CUpti_BuffersCallbackRequestFunc give,
                            CUpti_BuffersCallbackCompleteFunc take) {
  fake_trace->give = give;
  fake_trace->take = take;
  return CUPTI_SUCCESS;
}

CUptiResult Enable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_MEMSET && fake_trace->memset_result != CUPTI_SUCCESS)
    return fake_trace->memset_result;
  fake_trace->enabled.insert(kind);
  return CUPTI_SUCCESS;
}

CUptiResult Disable(CUpti_ActivityKind kind) {
  fake_trace->enabled.erase(kind);
  return CUPTI_SUCCESS;
}

CUptiResult Flush(uint32_t) {
  for (size_t i = 0; i < fake_trace->records.size(); i += 2) {
    uint8_t* buffer = nullptr;
    size_t bytes = 0;
    size_t records_max = 1;
    fake_trace->give(&buffer, &bytes, &records_max);
    EXPECT_EQ(records_max, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 8, 0u);
    const size_t count = std::min<size_t>(2, fake_trace->records.size() - i);
    std::memcpy(buffer, &fake_trace->records[i], count * sizeof(fake_trace->records[0]));
    fake_trace->take(nullptr, 0, buffer, bytes, count * sizeof(fake_trace->records[0]));
  }
  fake_trace->records.clear();
  return fake_trace->flush_result;
}

CUptiResult NextRecord(uint8_t* buffer, size_t bytes, CUpti_Activity** record) {
  uint8_t* const next = *record == nullptr
                            ? buffer
                            : reinterpret_cast<uint8_t*>(*record) + sizeof(CUpti_ActivityMemset4);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult Dropped(CUcontext, uint32_t, size_t* dropped) {
  *dropped = std::exchange(fake_trace->dropped, 0);
  return CUPTI_SUCCESS;
}

CUpti_ActivityMemset4 Set(uint32_t device, uint64_t start, uint64_t end) {
  CUpti_ActivityMemset4 set = {};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.deviceId = device;
  set.start = start;
  set.end = end;
  set.bytes = start;
  return set;
}

class CuptiTraceTest : public ::testing::Test {
 protected:
  CuptiTraceTest() {
    fake_trace = &cupti_;
    api_.GetResultString = Text;
    api_.GetErrorMessage = Text;
    api_.GetTimestamp = Timestamp;
    api_.ActivityRegisterTimestampCallback = RegisterClock;
    api_.ActivityRegisterCallbacks = RegisterBuffers;
    api_.ActivityEnable = Enable;
    api_.ActivityDisable = Disable;
    api_.ActivityFlushAll = Flush;
    api_.ActivityGetNextRecord = NextRecord;
    api_.ActivityGetNumDroppedRecords = Dropped;
  }

  FakeTrace cupti_;
  Api api_ = {};
};

TEST_F(CuptiTraceTest, GivesThisDevicesActivitiesInOrderOfStart) {
  Trace trace(api_, 1);
  ASSERT_TRUE(trace.Start().ok());
  EXPECT_TRUE(cupti_.clock_came_first);
  EXPECT_THAT(cupti_.enabled, ElementsAre(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                          CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  cupti_.records = {Set(1, 300, 400), Set(0, 1, 2), Set(1, 100, 500), Set(1, 200, 250)};
  const auto activities = trace.Stop();
  ASSERT_TRUE(activities.ok()) << activities.status();
  EXPECT_THAT(*activities, ElementsAre(Field(&DeviceActivity::start_ns, 100),
                                       Field(&DeviceActivity::start_ns, 200),
                                       Field(&DeviceActivity::start_ns, 300)));
  EXPECT_THAT(cupti_.enabled, IsEmpty()) << "nothing is recorded between traces";
}

TEST_F(CuptiTraceTest, TracesFollowEachOther) {
  Trace trace(api_, 0);
  for (const uint64_t start : {uint64_t{10}, uint64_t{20}}) {
    ASSERT_TRUE(trace.Start().ok());
    EXPECT_EQ(trace.Start().code(), absl::StatusCode::kFailedPrecondition);
    cupti_.records = {Set(0, start, start + 1)};
    const auto activities = trace.Stop();
    ASSERT_TRUE(activities.ok()) << activities.status();
    ASSERT_EQ(activities->size(), 1u);
    EXPECT_EQ(activities->front().bytes, static_cast<int64_t>(start));
  }
  EXPECT_EQ(trace.Stop().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(CuptiTraceTest, WithoutAClockOfOursTimesAreMoved) {
  cupti_.clock_result = CUPTI_ERROR_NOT_INITIALIZED;
  cupti_.clock_behind_ns = 1000000000;
  Trace trace(api_, 0);
  ASSERT_TRUE(trace.Start().ok());
  cupti_.records = {Set(0, 100, 400)};
  const auto activities = trace.Stop();
  ASSERT_TRUE(activities.ok()) << activities.status();
  ASSERT_EQ(activities->size(), 1u);
  EXPECT_NEAR(static_cast<double>(activities->front().start_ns), 1e9 + 100, 1e8);
  EXPECT_EQ(activities->front().end_ns - activities->front().start_ns, 300);
}

TEST_F(CuptiTraceTest, WhatIsMissingIsAnError) {
  Trace trace(api_, 0);
  cupti_.dropped = 5;  // before the trace: none of its
  ASSERT_TRUE(trace.Start().ok());
  cupti_.records = {Set(0, 100, 200), Set(0, 0, 0), Set(0, 300, 299)};
  cupti_.dropped = 2;
  const absl::Status status = trace.Stop().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("lacks 4 records besides the 1 that it has"));
  ASSERT_TRUE(trace.Start().ok());
  EXPECT_TRUE(trace.Stop().ok()) << "the next trace starts with nothing lost";
}

TEST_F(CuptiTraceTest, AFailureLeavesNothingEnabled) {
  Trace trace(api_, 0);
  cupti_.memset_result = CUPTI_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(trace.Start().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(cupti_.enabled, IsEmpty());
  cupti_.memset_result = CUPTI_SUCCESS;
  ASSERT_TRUE(trace.Start().ok());
  cupti_.flush_result = CUPTI_ERROR_UNKNOWN;
  EXPECT_EQ(trace.Stop().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(cupti_.enabled, IsEmpty());
}

TEST_F(CuptiTraceTest, StopsWhenItGoes) {
  {
    Trace trace(api_, 0);
    ASSERT_TRUE(trace.Start().ok());
  }
  EXPECT_THAT(cupti_.enabled, IsEmpty());
}

}  // namespace
}  // namespace warpcall::cupti
