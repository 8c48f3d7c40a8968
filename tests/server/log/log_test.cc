#include "server/log/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/log/log_writer.h"

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

TEST(Log, AnApostropheIsItself) {
  const std::string line = Logged(LogLevel::kInfo, "it can't be", {{"what", R"(\' it's)"}});
  EXPECT_NE(line.find(R"(msg="it can't be" what="\\' it's")"), std::string::npos) << line;
}

// Whatever a client sends: a line is for people to read.
TEST(Log, ALongValueIsCutAndItsLengthTold) {
  const std::string line =
      Logged(LogLevel::kInfo, std::string(60'000, 'm'),
             {{"long", std::string(60'000, '\n')}, {"whole", std::string(1024, 'w')}});
  EXPECT_LT(line.size(), 6000u);
  EXPECT_NE(line.find("msg=\"" + std::string(1024, 'm') + "... (60000 bytes)\""),
            std::string::npos);
  EXPECT_NE(line.find("\\n... (60000 bytes)\" whole=" + std::string(1024, 'w') + "\n"),
            std::string::npos);
}

class JsonLog : public ::testing::Test {
 protected:
  JsonLog() { SetLogFormat(LogFormat::kJson); }
  ~JsonLog() override { SetLogFormat(LogFormat::kLogfmt); }
};

TEST_F(JsonLog, WritesAnObjectALineWithTheSameKeys) {
  const std::string line = Logged(LogLevel::kWarning, "request failed",
                                  {{"request_id", "17"}, {"total_ns", 42}, {"share", -1.5e30}});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object["ts"].get<std::string>().size(), 27u);
  object.erase("ts");
  EXPECT_EQ(object, nlohmann::json({{"level", "warning"},
                                    {"msg", "request failed"},
                                    {"request_id", "17"},
                                    {"total_ns", 42},
                                    {"share", -1.5e30}}));
}

TEST(Say, NamesTheProgram) {
  ::testing::internal::CaptureStderr();
  Say(STDERR_FILENO, LogLevel::kError, "cannot listen", {{"port", 7}});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warpcalld: cannot listen\n");
}

TEST_F(JsonLog, WhatTheProgramSaysIsAnObjectAsWell) {
  ::testing::internal::CaptureStderr();
  Say(STDERR_FILENO, LogLevel::kError, "cannot listen", {{"port", 7}});
  nlohmann::json object = nlohmann::json::parse(::testing::internal::GetCapturedStderr());
  object.erase("ts");
  EXPECT_EQ(object, nlohmann::json({{"level", "error"}, {"msg", "cannot listen"}, {"port", 7}}));
}

TEST_F(JsonLog, AnyBytesAreAString) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string valid = "\u00e9 \u20ac \U0001f600 \ud7ff";
  // Overlong, a surrogate, beyond the last code point, cut short.
  const std::string wrong = "\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82";
  const double infinite = std::numeric_limits<double>::infinity();
  const std::string line =
      Logged(LogLevel::kError, "a\n\"}",
             {{"all", all}, {"valid", valid}, {"wrong", wrong}, {"", ""}, {"inf", infinite}});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object["msg"], "a\n\"}");
  EXPECT_EQ(object["valid"], valid);
  EXPECT_EQ(object["all"].get<std::string>().substr(0, 128), all.substr(0, 128));
  const std::string unknown = "\ufffd";
  const std::string wanted =
      absl::StrCat(unknown, unknown, "|", unknown, unknown, unknown, "|", unknown, unknown, unknown,
                   unknown, "|", unknown, unknown);
  EXPECT_EQ(object["wrong"], wanted);
  EXPECT_EQ(object["inf"], "inf");
}

TEST_F(JsonLog, ALongValueIsCutBetweenCharacters) {
  for (const std::string character : {"\u00e9", "\u20ac", "\U0001f600"}) {
    std::string text = "ab";
    while (text.size() < 2000) text += character;
    const nlohmann::json object =
        nlohmann::json::parse(Logged(LogLevel::kInfo, "x", {{"text", text}}));
    const std::string said = object["text"];
    EXPECT_EQ(said.find("\ufffd"), std::string::npos);
    const size_t kept = said.find("... (");
    EXPECT_GT(kept, 1020u);
    EXPECT_LE(kept, 1024u);
    EXPECT_EQ(said.substr(0, kept), text.substr(0, kept));
  }
}

TEST_F(JsonLog, ParsesItsFormats) {
  LogFormat format;
  EXPECT_TRUE(ParseLogFormat("json", &format));
  EXPECT_EQ(format, LogFormat::kJson);
  EXPECT_EQ(LogFormatName(CurrentLogFormat()), "json");
  EXPECT_FALSE(ParseLogFormat("xml", &format));
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
