#include "server/log.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

std::string Logged(LogLevel level, absl::string_view message,
                   std::initializer_list<LogField> fields) {
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

TEST(Log, ParsesItsLevels) {
  LogLevel level;
  EXPECT_TRUE(ParseLogLevel("warning", &level));
  EXPECT_EQ(level, LogLevel::kWarning);
  EXPECT_FALSE(ParseLogLevel("loud", &level));
}

}  // namespace
}  // namespace warpcall
