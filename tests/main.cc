// main of a room's test program. Each of ctest's tests is the cases of some of its source files:
//   <program> --tests_of=<path below tests/>[,<path>...] [GoogleTest's flags]
// A source without any case is refused: a test that runs nothing shows nothing. Without
// --tests_of everything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall::testing {
namespace {

constexpr char kTestsOf[] = "--tests_of=";

// Names of the cases of one source file, as GoogleTest's filter takes them, each with ':' behind.
std::string CasesOf(const std::string& source) {
  const std::string path = absl::StrCat("/tests/", source);
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::string names;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int i = 0; i < suite.total_test_count(); ++i) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(i);
      // A compiler's cache makes the path relative to the root of the project.
      if (absl::EndsWith(absl::StrCat("/", test.file()), path))
        absl::StrAppend(&names, suite.name(), ".", test.name(), ":");
    }
  }
  return names;
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (!absl::ConsumePrefix(&argument, kTestsOf)) {
      std::fprintf(stderr,
                   "%s: unknown argument %s; GoogleTest's flags and %sSOURCE,... are known\n",
                   argv[0], argv[i], kTestsOf);
      return 2;
    }
    for (const std::string& source : std::vector<std::string>(absl::StrSplit(argument, ','))) {
      const std::string cases = CasesOf(source);
      if (cases.empty()) {
        std::fprintf(stderr, "%s: no test case comes from tests/%s\n", argv[0], source.c_str());
        return 2;
      }
      filter += cases;
    }
  }
  if (!filter.empty()) ::testing::GTEST_FLAG(filter) = filter;
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace warpcall::testing

int main(int argc, char** argv) { return warpcall::testing::Main(argc, argv); }
