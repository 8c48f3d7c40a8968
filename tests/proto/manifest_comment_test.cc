#include "proto/common/manifest_comment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace warpcall {
namespace {

using ::testing::HasSubstr;

TEST(ManifestCommentTest, IsTheFirstCommentOfTheSource) {
  const auto found = FindManifest(
      "\n// warpcall-kernel {\n//   \"name\": \"n\",\n//   \"launch\": {\n//   }\n// }\n// { "
      "}\nvoid f() {}\n");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, "{\n   \"name\": \"n\",\n   \"launch\": {\n   }\n }");
  EXPECT_EQ(*FindManifest("// warpcall-kernel {\r\n//\"a\": 1\r\n//}\r\n"), "{\n\"a\": 1\n}");
}

TEST(ManifestCommentTest, MayStandInOneLine) {
  EXPECT_EQ(*FindManifest("// warpcall-kernel {\"a\": {\"b\": 1}}\n// }\nvoid f() {}\n"),
            "{\"a\": {\"b\": 1}}");
  EXPECT_EQ(*FindManifest("\n// warpcall-kernel {\"a\": 1} \r\n"), "{\"a\": 1}");
  EXPECT_EQ(*FindManifest("// warpcall-kernel {\"a\": 1,\n//  \"b\": 2\n// }\n"),
            "{\"a\": 1,\n  \"b\": 2\n }");
  EXPECT_THAT(
      std::string(FindManifest("// warpcall-kernel {\"a\": 1\nvoid f() {}").status().message()),
      HasSubstr("has no end"));
}

TEST(ManifestCommentTest, MayStandBehindAByteOrderMark) {
  EXPECT_EQ(*FindManifest("\xEF\xBB\xBF// warpcall-kernel {\n// \"a\": 1\n// }\n"),
            "{\n \"a\": 1\n }");
  EXPECT_FALSE(FindManifest("\n\xEF\xBB\xBF// warpcall-kernel {\n// }\n").ok());
}

TEST(ManifestCommentTest, SaysWhyItIsNotFound) {
  const auto complaint = [](absl::string_view source) {
    return std::string(FindManifest(source).status().message());
  };
  EXPECT_THAT(complaint(""), HasSubstr("the source is empty"));
  EXPECT_THAT(complaint("#include <x>\n"),
              HasSubstr("the source does not begin with the manifest"));
  EXPECT_THAT(complaint("#include <x>\n\n// warpcall-kernel {\n// }"),
              HasSubstr("stands in line 3 of the source; it must stand at the beginning"));
  EXPECT_THAT(complaint("void f();\n// warpcall-kernel {\"a\": 1}\n"),
              HasSubstr("stands in line 2 of the source"));
  EXPECT_THAT(complaint("// warpcall-kernel {\n// \"a\": 1\nvoid f();\n// }"),
              HasSubstr("has no end"));
  EXPECT_THAT(complaint("// warpcall-kernel {"), HasSubstr("has no end"));
}

}  // namespace
}  // namespace warpcall
