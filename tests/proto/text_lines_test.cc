#include "proto/common/text_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall {
namespace {

using ::testing::ElementsAre;

TEST(WrapTextTest, BreaksAtSpacesThenCommasThenAnywhere) {
  EXPECT_THAT(WrapText("one two three", 0), ElementsAre("one two three"));
  EXPECT_THAT(WrapText("one  two", 8), ElementsAre("one  two"));
  EXPECT_THAT(WrapText("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("float32,float16,bfloat16", 20),
              ElementsAre("float32,float16,", "bfloat16"));
  EXPECT_THAT(WrapText("a abcdefgh", 4), ElementsAre("a", "abcd", "efgh"));
  EXPECT_THAT(WrapText("", 4), ElementsAre(""));
  // Two characters of two bytes each.
  EXPECT_THAT(WrapText("\xC3\xA9\xC3\xA9\xC3\xA9", 2), ElementsAre("\xC3\xA9\xC3\xA9", "\xC3\xA9"));
}

TEST(FitHelpTest, DescriptionsStayInTheirColumn) {
  const std::string option = "  --name TEXT                 one two three";
  EXPECT_EQ(FitHelp(option, 0), option);
  EXPECT_EQ(FitHelp(option + "\n", 38), "  --name TEXT                 one two\n"
                                        "                              three\n");
  // A name that reaches into that column has its description below, which is broken there.
  EXPECT_EQ(FitHelp("  --a_very_long_name TEXT=value one two", 36),
            "  --a_very_long_name TEXT=value\n      one two");
}

}  // namespace
}  // namespace warpcall
