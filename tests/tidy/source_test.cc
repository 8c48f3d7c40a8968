#include "tests/tidy/source.h"

#include "gtest/gtest.h"

namespace warpcall::tidy {
namespace {

TEST(BlankTest, CommentsGoAndNewlinesStay) {
  EXPECT_EQ(BlankCommentsAndLiterals("a // b\nc /* d\n{ */ e"), "a     \nc     \n     e");
}

TEST(BlankTest, LiteralsKeepTheirQuotes) {
  EXPECT_EQ(BlankCommentsAndLiterals(R"(f("{\"", '}', "//"))"), R"(f("   ", ' ', "  "))");
}

TEST(BlankTest, RawStringsEndAtTheirOwnDelimiter) {
  EXPECT_EQ(BlankCommentsAndLiterals("x = R\"q({ )\" )q\"; y"), "x = R\"         \"; y");
}

TEST(BlankTest, DigitSeparatorsOpenNoLiteral) {
  EXPECT_EQ(BlankCommentsAndLiterals("1'000'000 {"), "1'000'000 {");
  EXPECT_EQ(BlankCommentsAndLiterals("0x1'F {'x'}"), "0x1'F {' '}");
}

TEST(BlankTest, PrefixedCharacterIsALiteral) {
  EXPECT_EQ(BlankCommentsAndLiterals("u8'{' {"), "u8' ' {");
}

TEST(BlankTest, UnterminatedTextEndsWithTheFile) {
  EXPECT_EQ(BlankCommentsAndLiterals("a /* b"), "a     ");
  EXPECT_EQ(BlankCommentsAndLiterals("a \"").size(), 3u);
}

TEST(BlankTest, DirectivesGoWithTheirContinuations) {
  EXPECT_EQ(BlankDirectives("#define A { \\\n  {\nint b;\n  # if C\n"),
            "             \n   \nint b;\n        \n");
}

TEST(SourceTest, LinesLeaveOutWhatFollowsTheLastNewline) {
  const Source source = MakeSource("a.cc", "one\n\"two\"\n");
  ASSERT_EQ(source.TextLines().size(), 2u);
  EXPECT_EQ(source.TextLines()[1], "\"two\"");
  EXPECT_EQ(source.CodeLines()[1], "\"   \"");
}

TEST(SourceTest, KnowsKindsByName) {
  EXPECT_TRUE(IsHeader("a/b.cuh"));
  EXPECT_TRUE(IsCpp("a/b.cu"));
  EXPECT_FALSE(IsCpp("a/b.py"));
  EXPECT_TRUE(IsSource("a/CMakeLists.txt"));
  EXPECT_FALSE(IsSource("a/weights.npy"));
}

TEST(FindingTest, PrintsAsCompilersDo) {
  EXPECT_EQ(ToString({"a/b.cc", 12, "too long"}), "a/b.cc:12: too long");
}

}  // namespace
}  // namespace warpcall::tidy
