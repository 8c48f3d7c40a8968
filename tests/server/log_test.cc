#include "server/log.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

std::string Logged(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  ::testing::internal::CaptureStderr();
  Log(level, message, fields);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, WritesOneLineOfKeysAndValues) {
  const std::string line =
      Logged(LogLevel::kWarning, "request failed", {{"request_id", "a-1"}, {"total_ns", 42}});
  EXPECT_NE(line.find(" level=warning msg=\"request failed\" request_id=a-1 total_ns=42\n"),
            std::string::npos)
      << line;
  EXPECT_EQ(line.rfind("ts=", 0), 0u);
}

TEST(Log, AValueCannotForgeALineOrAField) {
  const std::string line =
      Logged(LogLevel::kError, "x", {{"id", "a\nts=0 level=info"}, {"q", "\"b\" c=d"}, {"e", ""}});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_NE(line.find("id=\"a\\nts=0 level=info\" q=\"\\\"b\\\" c=d\" e=\"\"\n"), std::string::npos)
      << line;
}

TEST(Log, DropsLinesBelowTheLevel) {
  EXPECT_EQ(Logged(LogLevel::kDebug, "hidden", {}), "");
  SetLogLevel(LogLevel::kDebug);
  EXPECT_NE(Logged(LogLevel::kDebug, "shown", {}), "");
  SetLogLevel(LogLevel::kError);
  EXPECT_EQ(Logged(LogLevel::kWarning, "hidden", {}), "");
  SetLogLevel(LogLevel::kInfo);
}

TEST(Log, AlwaysMeansAtAnyLevel) {
  SetLogLevel(LogLevel::kError);
  ::testing::internal::CaptureStderr();
  LogAlways(LogLevel::kInfo, "shown", {{"k", 1}});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(" level=info msg=shown k=1\n"),
            std::string::npos);
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
  SetLogLevel(LogLevel::kInfo);
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

TEST(Log, ParsesItsLevels) {
  LogLevel level;
  EXPECT_TRUE(ParseLogLevel("warning", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("loud", &level));
}

}  // namespace
}  // namespace warpcall
