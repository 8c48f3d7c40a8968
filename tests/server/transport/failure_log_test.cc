#include "server/transport/failure_log.h"

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/transport/request.h"

namespace warpcall {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr Failure kDraining = {absl::StatusCode::kUnavailable, RejectReason::kDraining,
                               LogLevel::kError};
constexpr Failure kFull = {absl::StatusCode::kResourceExhausted, RejectReason::kQueueRequests,
                           LogLevel::kInfo};
constexpr Failure kFault = {absl::StatusCode::kInvalidArgument, RejectReason::kNone,
                            LogLevel::kInfo};

int Admitted(FailureCounts* counts, const Failure& failure, int64_t now_ns, int times) {
  int admitted = 0;
  for (int i = 0; i < times; ++i) admitted += counts->Admit(failure, now_ns);
  return admitted;
}

TEST(FailureCounts, ARefusalHasALineASecondAndTheRestIsCounted) {
  FailureCounts counts;
  EXPECT_EQ(Admitted(&counts, kDraining, 5, 1000), 1);
  EXPECT_EQ(Admitted(&counts, kDraining, 5 + kSecondNs - 1, 7), 0);
  EXPECT_TRUE(counts.Take(5 + kSecondNs - 1).empty());
  EXPECT_FALSE(counts.empty());
  const auto taken = counts.Take(5 + kSecondNs);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].count, 1006);
  EXPECT_EQ(taken[0].failure.code, kDraining.code);
  EXPECT_EQ(taken[0].failure.reason, kDraining.reason);
  EXPECT_EQ(taken[0].failure.level, kDraining.level);
  EXPECT_TRUE(counts.empty());
  EXPECT_EQ(Admitted(&counts, kDraining, 6 + kSecondNs, 2), 1);
}

TEST(FailureCounts, OneKindLeavesTheLinesOfOthersAlone) {
  FailureCounts counts;
  EXPECT_EQ(Admitted(&counts, kDraining, 0, 9), 1);
  EXPECT_EQ(Admitted(&counts, kFull, 0, 9), 1);
  EXPECT_EQ(Admitted(&counts, kFault, 0, 100), FailureCounts::kFaultLines);
  int64_t left_out = 0;
  for (const FailureCounts::LeftOut& kind : counts.Take(kNoDeadline)) left_out += kind.count;
  EXPECT_EQ(left_out, 8 + 8 + 100 - FailureCounts::kFaultLines);
}

// No failure is lost if nobody reports the counts in time.
TEST(FailureCounts, WhatIsNotTakenIsCountedOn) {
  FailureCounts counts;
  EXPECT_EQ(Admitted(&counts, kFull, 0, 3), 1);
  EXPECT_EQ(Admitted(&counts, kFull, 5 * kSecondNs, 3), 0);
  const auto taken = counts.Take(5 * kSecondNs);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].count, 5);
}

TEST(FailureCounts, ASlowTrickleHasItsLines) {
  FailureCounts counts;
  for (int64_t i = 1; i <= 10; ++i) EXPECT_TRUE(counts.Admit(kFull, i * kSecondNs));
  EXPECT_TRUE(counts.empty());
}

TEST(FailureLog, TellsWhatItLeftOutWhenItGoes) {
  ::testing::internal::CaptureStderr();
  int admitted = 0;
  {
    FailureLog log;
    for (int i = 0; i < 100; ++i) admitted += log.Admit(kDraining);
    EXPECT_GE(admitted, 1);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("level=error msg=\"refused "), std::string::npos) << said;
  EXPECT_NE(said.find(" requests more: draining\" code=UNAVAILABLE reason=draining count="),
            std::string::npos)
      << said;
  // However long this took, each has a line or is counted in one.
  int told = 0;
  for (const absl::string_view word : absl::StrSplit(said, absl::ByAnyChar(" \n"))) {
    absl::string_view count = word;
    int number = 0;
    if (absl::ConsumePrefix(&count, "count=") && absl::SimpleAtoi(count, &number)) told += number;
  }
  EXPECT_EQ(told + admitted, 100) << said;
}

TEST(HasLogLine, DebugHasALineForEach) {
  FailureLog log;
  ExecuteDeps deps{};
  deps.parts.failures = &log;
  const auto lines = [&] {
    int sum = 0;
    const absl::Status draining = RefuseFor(RejectReason::kDraining, absl::UnavailableError(""));
    for (int i = 0; i < 10; ++i) sum += HasLogLine(deps, draining, LogLevel::kInfo);
    return sum;
  };
  EXPECT_LT(lines(), 10);
  SetLogLevel(LogLevel::kDebug);
  EXPECT_EQ(lines(), 10);
  SetLogLevel(LogLevel::kInfo);
}

}  // namespace
}  // namespace warpcall
