#include "client/cli/common/screen.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;

class FindScreenTest : public ::testing::Test {
 protected:
  FindScreenTest() {
    unsetenv("COLUMNS");
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    winsize size = {.ws_row = 24, .ws_col = 72, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(openpty(&keyboard_, &terminal_, nullptr, nullptr, &size), 0);
    file_ = open("/dev/null", O_WRONLY | O_CLOEXEC);
  }
  ~FindScreenTest() override {
    for (const int descriptor : {keyboard_, terminal_, file_}) close(descriptor);
    unsetenv("COLUMNS");
    unsetenv("NO_COLOR");
  }
  int keyboard_ = -1;
  int terminal_ = -1;
  int file_ = -1;
};

TEST_F(FindScreenTest, ATerminalSaysItsWidthAndHasColours) {
  setenv("COLUMNS", "200", 1);
  EXPECT_EQ(FindScreen(terminal_).columns, 72u);
  EXPECT_TRUE(FindScreen(terminal_).colour);
}

TEST_F(FindScreenTest, WhatIsNoTerminalHas100ColumnsOrThoseOfTheEnvironmentAndNoColours) {
  EXPECT_EQ(FindScreen(file_).columns, 100u);
  EXPECT_FALSE(FindScreen(file_).colour);
  for (const auto& [text, columns] : {std::pair("200", 200u),
                                      {"80", 80u},
                                      {"wide", 100u},
                                      {"0", 100u},
                                      {"-5", 100u},
                                      {"7", 40u}}) {
    setenv("COLUMNS", text, 1);
    EXPECT_EQ(FindScreen(file_).columns, columns) << text;
  }
}

TEST_F(FindScreenTest, NoColorAndDumbTerminalsHaveNone) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(FindScreen(terminal_).colour);
  setenv("NO_COLOR", "", 1);  // empty is as if it were not there, says the convention
  EXPECT_TRUE(FindScreen(terminal_).colour);
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(FindScreen(terminal_).colour);
}

TEST(EmphasisedTest, IsTheTextWhereThereAreNoColours) {
  EXPECT_EQ(Emphasised("text", Emphasis::kError, {}), "text");
  EXPECT_EQ(Emphasised("text", Emphasis::kHeading, {.colour = true}), "\x1b[1mtext\x1b[0m");
}

TEST(PrintableTest, WritesOutWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("plain \xC3\xA9"), "plain \xC3\xA9");
  EXPECT_EQ(Printable(absl::string_view("a\0b\x7F\n\t", 6)), "a\\x00b\\x7f\\x0a\\x09");
  EXPECT_EQ(Printable("\xC2\x9Bm \xC2\xA0 \xC2"), "\\xc2\\x9bm \xC2\xA0 \\xc2");
}

TEST(PrintableTest, WritesOutWhatHidesOrTurnsOtherText) {
  EXPECT_EQ(Printable("a\u202Eb"), "a\\xe2\\x80\\xaeb");  // right-to-left override
  EXPECT_EQ(Printable("a\u2066\u200Bb"), "a\\xe2\\x81\\xa6\\xe2\\x80\\x8bb");
  EXPECT_EQ(Printable("\u2028"), "\\xe2\\x80\\xa8");           // a line separator
  EXPECT_EQ(Printable("\U000E0041"), "\\xf3\\xa0\\x81\\x81");  // a tag
  EXPECT_EQ(Printable("\u00B5 \u2026 \U0001F600"), "\u00B5 \u2026 \U0001F600");
}

TEST(PrintableTest, WritesOutWhatIsNotUtf8) {
  EXPECT_EQ(Printable("\x9B\xFF z"), "\\x9b\\xff z");
  EXPECT_EQ(Printable("\xC0\x9B"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(Printable("\xE0\x81\x81"), "\\xe0\\x81\\x81");  // overlong
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xE2\x80z"), "\\xe2\\x80z");
}

TEST(PrintableTest, LinesKeepTheirEndsAndOurOwnColours) {
  const std::string bold = Emphasised("b", Emphasis::kHeading, {.colour = true});
  EXPECT_EQ(PrintableLines("a\n\tb\x1b[1m", {}), "a\n\tb\\x1b[1m");
  EXPECT_EQ(PrintableLines(bold + "\n\x1b[2J", {.colour = true}), bold + "\n\\x1b[2J");
}

class FittedTest : public ::testing::Test {
 protected:
  ~FittedTest() override { SetOutScreen({}); }
};

TEST_F(FittedTest, LinesStandBehindWhatIsBeforeThemWhereThereIsRoom) {
  EXPECT_EQ(Fitted("- ", "as long as it likes to be", 2), "- as long as it likes to be\n");
  SetOutScreen({.columns = 40});
  EXPECT_EQ(Fitted("- ", "words that are wider than forty columns are", 2),
            "- words that are wider than forty\n  columns are\n");
  EXPECT_EQ(Fitted("", "words that are wider than forty columns are", 2),
            "words that are wider than forty\n  columns are\n");
  EXPECT_EQ(Fitted("--attribute name=value  ", "words that are wider than forty", 24),
            "--attribute name=value  \n      words that are wider than forty\n");
}

TEST_F(FittedTest, ItsTextsAreShownAsPrintable) {
  EXPECT_EQ(Fitted("a\n: ", "b\nOK: fine\x1b[2J", 2), "a\\x0a: b\\x0aOK: fine\\x1b[2J\n");
}

}  // namespace
}  // namespace warpcall::cli
