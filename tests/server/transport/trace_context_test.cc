#include "server/transport/trace_context.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>

namespace warpcall {
namespace {

// The specification's own example.
constexpr char kExample[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, ReadsTheIdsAndWhetherTheTraceIsRecorded) {
  const std::optional<TraceContext> context = ParseTraceparent(kExample);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(context->parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(context->sampled);
}

TEST(TraceContext, OnlyTheLowestFlagSaysThatTheTraceIsRecorded) {
  const std::string digits = "0123456789abcdef";
  for (size_t flag = 0; flag < digits.size(); ++flag) {
    std::string text = kExample;
    text[text.size() - 2] = 'f';
    text.back() = digits[flag];
    const std::optional<TraceContext> context = ParseTraceparent(text);
    ASSERT_TRUE(context.has_value()) << text;
    EXPECT_EQ(context->sampled, flag % 2 == 1) << text;
  }
}

TEST(TraceContext, TakesAllZeroIdsForNone) {
  EXPECT_FALSE(ParseTraceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
  EXPECT_FALSE(ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
  EXPECT_TRUE(ParseTraceparent("00-00000000000000000000000000000001-0000000000000001-00"));
}

TEST(TraceContext, TakesWhatIsMalformedForNone) {
  const std::string example = kExample;
  EXPECT_FALSE(ParseTraceparent(""));
  EXPECT_FALSE(ParseTraceparent("---"));
  EXPECT_FALSE(ParseTraceparent(example + "-"));
  EXPECT_FALSE(ParseTraceparent(example + "-more"));
  EXPECT_FALSE(ParseTraceparent(" " + example));
  for (size_t bytes = 0; bytes < example.size(); ++bytes)
    EXPECT_FALSE(ParseTraceparent(example.substr(0, bytes))) << bytes;
  // A character that is in no place of a version 00.
  for (size_t at = 0; at < example.size(); ++at) {
    std::string text = example;
    text[at] = 'g';
    EXPECT_FALSE(ParseTraceparent(text)) << text;
    text[at] = static_cast<char>(std::toupper(example[at]));
    EXPECT_EQ(ParseTraceparent(text).has_value(), text == example) << text;
  }
  for (const char* version : {"01", "ff", "0", "000"})
    EXPECT_FALSE(ParseTraceparent(version + example.substr(2))) << version;
}

}  // namespace
}  // namespace warpcall
