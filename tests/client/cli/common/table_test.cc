#include "client/cli/common/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace warpcall::cli {
namespace {

TEST(TableTest, AlignsColumnsWithoutTrailingSpaces) {
  Table table({"NAME", ">N", "TEXT"});
  table.AddRow({"a", "1000", "x"});
  table.AddRow({"longer", "7", ""});
  EXPECT_EQ(table.ToString(),
            "NAME       N  TEXT\n"
            "a       1000  x\n"
            "longer     7\n");
}

TEST(TableTest, CountsCharactersNotBytes) {
  Table table({{"A"}, {"B"}});
  table.AddRow({"\xC3\xA9\xC3\xA9", "1"});
  table.AddRow({"xx", "2"});
  EXPECT_EQ(table.ToString(), "A   B\n\xC3\xA9\xC3\xA9  1\nxx  2\n");
}

TEST(TableTest, NotesRunOverTheColumnsBehindThem) {
  Table table({{"A"}, {"B"}, {"C", Table::Align::kRight}});
  table.AddRow({"x", "1", "2"});
  table.AddNote({"long name"}, "a note that is wider than the table");
  EXPECT_EQ(table.ToString(),
            "A          B  C\n"
            "x          1  2\n"
            "long name  a note that is wider than the table\n");
}

TEST(TableTest, BreaksTheWidestTextWhereItWouldNotFit) {
  Table table({{"NAME"}, {"N", Table::Align::kRight}, {"SUMMARY"}});
  table.AddRow({"a", "1", "one pass over the rows, vectorised"});
  table.AddRow({"b", "2", "short"});
  EXPECT_EQ(table.ToString({.columns = 34}),
            "NAME  N  SUMMARY\n"
            "a     1  one pass over the rows,\n"
            "         vectorised\n"
            "b     2  short\n");
}

TEST(TableTest, TextThatHasNoRoomStandsBelowItsRow) {
  Table table({{"NAME"}, {"N", Table::Align::kRight}, {"SUMMARY"}});
  table.AddRow({"a name of twenty-four ch", "1", "one pass over the rows, all threads"});
  table.AddRow({"b", "2", ""});
  EXPECT_EQ(table.ToString({.columns = 40}),
            "NAME                      N\n"
            "    SUMMARY\n"
            "a name of twenty-four ch  1\n"
            "    one pass over the rows, all threads\n"
            "b                         2\n");
}

TEST(TableTest, ColumnsThatDoNotFitFollowWithTheNamesOfTheRows) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"NAME"}, {"FIRST", kRight}, {"SECOND", kRight}, {"THIRD", kRight}});
  table.AddRow({"a", "1111111111", "2222222222", "3333333333"});
  table.AddRow({"b", "4", "5", "6"});
  EXPECT_EQ(table.ToString({.columns = 30}),
            "NAME       FIRST      SECOND\n"
            "a     1111111111  2222222222\n"
            "b              4           5\n"
            "\n"
            "NAME       THIRD\n"
            "a     3333333333\n"
            "b              6\n");
}

TEST(TableTest, ASingleRowIsFoldedWithoutANameBeforeIt) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"A", kRight}, {"B", kRight}, {"C", kRight}});
  table.AddRow({"1111111111", "2222222222", "3333333333"});
  EXPECT_EQ(table.ToString({.columns = 24}),
            "         A           B\n"
            "1111111111  2222222222\n"
            "\n"
            "         C\n"
            "3333333333\n");
}

TEST(TableTest, NotesAreBrokenBesideOrBelowTheirRow) {
  Table table({{"A"}, {"B"}});
  table.AddNote({"x"}, "a note that is wider than forty columns are");
  EXPECT_EQ(table.ToString({.columns = 40}),
            "A  B\n"
            "x  a note that is wider than forty\n"
            "   columns are\n");
  Table narrow({{"A NAME OF TWENTY LETTERS"}, {"B"}});
  narrow.AddNote({"x"}, "a note that is wider than forty columns are");
  EXPECT_EQ(narrow.ToString({.columns = 40}),
            "A NAME OF TWENTY LETTERS  B\n"
            "x\n"
            "    a note that is wider than forty\n"
            "    columns are\n");
}

TEST(TableTest, NothingIsWiderThanTheScreenAndNothingIsLost) {
  constexpr auto kRight = Table::Align::kRight;
  for (size_t columns = 40; columns <= 160; ++columns) {
    Table table({{"SHAPE"},
                 {"IMPLEMENTATION"},
                 {"MEDIAN", kRight},
                 {"B/s", kRight},
                 {"FLOP/s", kRight},
                 {"TEXT"}});
    table.AddRow({"4096x1024", "onednn_softmax", "1.21 ms", "27.8 GB/s", "17.4 GFLOP/s",
                  "float32,float16,bfloat16 of a row that says much about itself"});
    table.AddRow({std::string(90, 'x'), "b", "1", "2", "3", std::string(90, 'y')});
    table.AddNote({"4096"}, "did not run: it does not take float16; takes float32, bfloat16");
    const std::string text = table.ToString({.columns = columns});
    std::string letters;
    for (const char c : text)
      if (c != ' ' && c != '\n') letters.push_back(c);
    for (const std::string part :
         {"onednn_softmax", "27.8GB/s", "17.4GFLOP/s", "muchaboutitself", "takesfloat32,bfloat16"})
      EXPECT_NE(letters.find(part), std::string::npos) << columns << part << "\n" << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), 'x') >= 90, true) << text;
    for (const absl::string_view line : absl::StrSplit(text, '\n'))
      EXPECT_LE(line.size(), columns) << text;
  }
}

TEST(TableTest, TheHeadingIsBoldWhereThereAreColours) {
  Table table({{"A"}, {"B"}});
  table.AddRow({"1", "2"});
  EXPECT_EQ(table.ToString({.columns = 0, .colour = true}), "\x1b[1mA  B\x1b[0m\n1  2\n");
}

TEST(TableTest, ACellStaysOneLineOfText) {
  Table table({{"A"}, {"B"}});
  table.AddRow({"1\x1b[2J", "a\nb"});
  table.AddNote({"2"}, "c\td");
  EXPECT_EQ(table.ToString(), "A         B\n1\\x1b[2J  a\\x0ab\n2         c\\x09d\n");
}

TEST(CutMiddleTest, KeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(CutMiddle("abcdefghij", 10), "abcdefghij");
  EXPECT_EQ(CutMiddle("abcdefghijk", 10), "abcd...ijk");
  EXPECT_EQ(CutMiddle("", 5), "");
  const std::string accents = "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9";
  EXPECT_EQ(CutMiddle(accents, 7), accents);
  EXPECT_EQ(CutMiddle(accents, 5), "\xC3\xA9...\xC3\xA9");
}

TEST(HumanTest, TimesHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(HumanTime(0), "0 ns");
  EXPECT_EQ(HumanTime(850), "850 ns");
  EXPECT_EQ(HumanTime(999.6), "1.00 us");
  EXPECT_EQ(HumanTime(12345), "12.3 us");
  EXPECT_EQ(HumanTime(999600), "1.00 ms");
  EXPECT_EQ(HumanTime(1.2e9), "1.20 s");
  EXPECT_EQ(HumanTime(3.6e12), "3600 s");
  EXPECT_EQ(HumanTime(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(HumanTime(std::numeric_limits<double>::infinity()), "-");
}

TEST(HumanTest, BytesArePowersOf1024) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.00 KiB");
  EXPECT_EQ(HumanBytes(16.0 * 1024 * 1024), "16.0 MiB");
  EXPECT_EQ(HumanBytes(141.0 * 1024 * 1024 * 1024), "141 GiB");
}

TEST(HumanTest, RatesArePowersOf1000) {
  EXPECT_EQ(HumanRate(4.3e12, "B/s"), "4.30 TB/s");
  EXPECT_EQ(HumanRate(512, "FLOP/s"), "512 FLOP/s");
  EXPECT_EQ(HumanRate(0, "B/s"), "-");
}

}  // namespace
}  // namespace warpcall::cli
