// The text of the files that rows are written in, as part of this program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/source/files.h"
#include "tests/kernels/rows.h"

namespace warpcall::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> NamesOf(const std::vector<SourceFile>& files) {
  std::vector<std::string> names;
  for (const SourceFile& file : files) names.push_back(file.name);
  return names;
}

// A row that says nothing of its file is found in it all the same.
TEST(SourceFilesTest, EveryRowIsInTheFileThatItIsSaidToBeWrittenIn) {
  for (const Row& row : FullRegistry().rows()) {
    SCOPED_TRACE(absl::StrCat(row.implementation.name, " in ", row.implementation.file));
    const std::vector<SourceFile> files = FilesOf(row.implementation.file);
    ASSERT_THAT(files, Not(IsEmpty()));
    // A row that is the op's definition has its name from cpu::DefinitionRow.
    const bool is_definition = absl::StrContains(files[0].text, "cpu::DefinitionRow(");
    EXPECT_TRUE(
        is_definition ||
        absl::StrContains(files[0].text, absl::StrCat("\"", row.implementation.name, "\"")));
  }
}

TEST(SourceFilesTest, AFileBringsWhatItIncludesOfItsFolder) {
  const std::vector<SourceFile> files = FilesOf("kernels/softmax/softmax_simd.cc");
  EXPECT_THAT(NamesOf(files), ::testing::ElementsAre("kernels/softmax/softmax_simd.cc",
                                                     "kernels/softmax/softmax_simd.h",
                                                     "kernels/softmax/softmax_simd_columns-inl.h",
                                                     "kernels/softmax/softmax_simd_rows-inl.h",
                                                     "kernels/softmax/softmax.h"));
  for (const SourceFile& file : files) {
    EXPECT_EQ(file.language, "cpp");
    std::ifstream stream(absl::StrCat(WARPCALL_SOURCE_DIR, "/", file.name));
    EXPECT_EQ(file.text, std::string(std::istreambuf_iterator<char>(stream), {})) << file.name;
  }
}

TEST(SourceFilesTest, APathIsWhateverACompilerPutsBeforeIt) {
  EXPECT_EQ(FilesOf("/home/somebody/warpcall/kernels/gelu/gelu.cc").size(),
            FilesOf("kernels/gelu/gelu.cc").size());
  EXPECT_THAT(FilesOf("kernels/gelu/gelu.cc"), Not(IsEmpty()));
  EXPECT_THAT(FilesOf("other_kernels/gelu/gelu.cc"), IsEmpty());
  EXPECT_THAT(FilesOf("gelu.cc"), IsEmpty());
  EXPECT_THAT(FilesOf(""), IsEmpty());
}

}  // namespace
}  // namespace warpcall::testing
