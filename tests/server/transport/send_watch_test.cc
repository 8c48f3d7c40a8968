#include "server/transport/send_watch.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

TEST(SendWatchTest, LongMessagesHaveMoreTime) {
  const SendWatch watch(1'000);
  EXPECT_EQ(watch.AllowedNs(0), 1'000);
  EXPECT_EQ(watch.AllowedNs(SendWatch::kBytesPerPeriod), 2'000);
  EXPECT_EQ(watch.AllowedNs(SendWatch::kBytesPerPeriod * 7 / 2), 4'500);
}

TEST(SendWatchTest, ACallThatNobodyWatchesMaySend) {
  SendWatch::Sending sending(nullptr, nullptr);
  sending.Begin(1);
  sending.End();
}

TEST(SendWatchTest, WhatWasSentIsNotLookedAt) {
  SendWatch watch(1'000);
  {
    SendWatch::Sending sending(&watch, nullptr);
    sending.Begin(1);
    EXPECT_TRUE(watch.Check(1).empty());
    EXPECT_TRUE(watch.Check(1'000).empty());
    sending.End();
    EXPECT_TRUE(watch.Check(1'000'000).empty());
    sending.Begin(1);
  }
  EXPECT_TRUE(watch.Check(2'000'000).empty());
}

}  // namespace
}  // namespace warpcall
