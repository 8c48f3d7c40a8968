#include "client/cli/common/table.h"

#include <gtest/gtest.h>

namespace warpcall::cli {
namespace {

TEST(TableTest, AlignsColumnsWithoutTrailingSpaces) {
  Table table({{"NAME"}, {"N", Table::Align::kRight}, {"TEXT"}});
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
