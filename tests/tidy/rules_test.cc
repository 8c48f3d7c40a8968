#include "tests/tidy/rules.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace warpcall::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, "x\n");
  return text;
}

TEST(CheckSizeTest, CountsLines) {
  EXPECT_THAT(CheckSize(MakeSource("kernels/a.cc", Lines(500))), IsEmpty());
  EXPECT_THAT(
      CheckSize(MakeSource("kernels/a.py", Lines(501))),
      ElementsAre(Finding{"kernels/a.py", 501, "the file has 501 lines; the limit is 500"}));
}

TEST(CheckSizeTest, RootCMakeFileIsShorter) {
  EXPECT_THAT(CheckSize(MakeSource("CMakeLists.txt", Lines(120))), IsEmpty());
  EXPECT_EQ(CheckSize(MakeSource("CMakeLists.txt", Lines(121))).size(), 1u);
  EXPECT_THAT(CheckSize(MakeSource("proto/CMakeLists.txt", Lines(121))), IsEmpty());
}

TEST(CheckSizeTest, CountsColumnsAsCharacters) {
  const std::string hundred(100, 'x');
  EXPECT_THAT(CheckSize(MakeSource("a.cc", hundred)), IsEmpty());
  EXPECT_THAT(CheckSize(MakeSource("a.cc", absl::StrCat("\n", hundred, "x"))),
              ElementsAre(Finding{"a.cc", 2, "the line has 101 columns; the limit is 100"}));
  EXPECT_THAT(CheckSize(MakeSource("a.cc", std::string(99, 'x') + "\xC3\x97")), IsEmpty());
  EXPECT_THAT(CheckSize(MakeSource("a.cc", absl::StrCat("// https://", hundred))), IsEmpty());
}

TEST(CheckIncludeGuardTest, IsForHeadersAndOutsideComments) {
  EXPECT_THAT(CheckIncludeGuard(MakeSource("a.h", "// a\n#pragma once\n")), IsEmpty());
  EXPECT_THAT(CheckIncludeGuard(MakeSource("a.cc", "")), IsEmpty());
  EXPECT_THAT(CheckIncludeGuard(MakeSource("a.cuh", "// #pragma once\n")),
              ElementsAre(Finding{"a.cuh", 1, "the header has no #pragma once"}));
}

TEST(CheckIncludeGuardTest, PerTargetHeadersToggle) {
  EXPECT_THAT(
      CheckIncludeGuard(MakeSource("a-inl.h", "#if defined(A) == defined(HWY_TARGET_TOGGLE)\n")),
      IsEmpty());
  EXPECT_THAT(CheckIncludeGuard(MakeSource("a-inl.h", "#pragma once\n")),
              ElementsAre(Finding{"a-inl.h", 1, "the header has no guard by HWY_TARGET_TOGGLE"}));
}

TEST(CheckConditionalsTest, RefusesCudaUnderServerOnly) {
  for (const char* line : {"#if WARPCALL_CUDA\n", "#ifdef __CUDACC__\n", "# elif defined(CUDA)\n",
                           "#ifndef __NVCC__\n"}) {
    EXPECT_EQ(CheckConditionals(MakeSource("server/devices.cc", line)).size(), 1u) << line;
    EXPECT_THAT(CheckConditionals(MakeSource("kernels/a.cc", line)), IsEmpty());
  }
  EXPECT_THAT(CheckConditionals(MakeSource("server/a.cc", "#ifdef NDEBUG\n// #if CUDA\n")),
              IsEmpty());
}

TEST(CheckCopiesTest, LetsOnePlaceCopyWhereTensorsPass) {
  const std::string copy = "void f() {\n  std::memcpy(to, from, bytes);\n}\n";
  EXPECT_THAT(CheckCopies(MakeSource("server/engine/host_copy.h", copy)), IsEmpty());
  EXPECT_THAT(CheckCopies(MakeSource("kernels/identity/identity_memcpy.cc", copy)), IsEmpty());
  for (const char* path :
       {"server/engine/lane.cc", "server/transport/codec.cc", "server/worker/worker.cc"}) {
    EXPECT_THAT(CheckCopies(MakeSource(path, copy)),
                ElementsAre(Finding{path, 2,
                                    "memcpy where tensors pass through: CopyOnHost "
                                    "(server/engine/host_copy.h) copies, and counts"}));
  }
  for (const char* call : {"std::copy(a, b, c);", "std::copy_n<char*>(a, 3, c);",
                           "data.CopyTo(to);", "message->DumpToSingleSlice(&slice);",
                           "absl::c_copy(a, b);", "__builtin_memmove(a, b, 3);"}) {
    EXPECT_EQ(CheckCopies(MakeSource("server/transport/codec.cc", call)).size(), 1u) << call;
  }
  EXPECT_THAT(CheckCopies(MakeSource("server/engine/lane.cc",
                                     "CopyOnHost(to, from, &n);  // not memcpy(a, b, 1)\n"
                                     "int64_t copy_ns = std::copyable<int>;\n")),
              IsEmpty());
}

TEST(CheckNotesTest, AsksForAReason) {
  const std::string word =
      "TO"
      "DO";
  EXPECT_EQ(CheckNotes(MakeSource("a.cc", absl::StrCat("// ", word, ": later\n"))).size(), 1u);
  EXPECT_EQ(CheckNotes(MakeSource("a.sh", absl::StrCat("# ", word, "(): x\n"))).size(), 1u);
  EXPECT_EQ(CheckNotes(MakeSource("a.cc", absl::StrCat("// ", word, "(#12):\n"))).size(), 1u);
  EXPECT_EQ(CheckNotes(MakeSource("a.cc",
                                  "// FIX"
                                  "ME\n"))
                .size(),
            1u);
  EXPECT_THAT(CheckNotes(MakeSource("a.cc", absl::StrCat("// ", word, "(#12): gRPC 1.60\n"))),
              IsEmpty());
}

TEST(CheckListedTest, AcceptsTheFoldersFileOrOneAbove) {
  const std::vector<Source> sources = {
      MakeSource("kernels/CMakeLists.txt", "add_library(k STATIC op.cc gelu/gelu.cc)"),
      MakeSource("kernels/op.cc", ""), MakeSource("kernels/gelu/gelu.cc", ""),
      MakeSource("kernels/op.h", "")};
  EXPECT_THAT(CheckListed(sources), IsEmpty());
}

TEST(CheckListedTest, FollowsLoops) {
  const std::vector<Source> sources = {
      MakeSource("tests/CMakeLists.txt",
                 "foreach(test a b)\n  add(SOURCES ${test}_test.cc)\nendforeach()\n"),
      MakeSource("tests/a_test.cc", ""), MakeSource("tests/b_test.cc", ""),
      MakeSource("tests/c_test.cc", "")};
  const std::vector<Finding> findings = CheckListed(sources);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].path, "tests/c_test.cc");
}

TEST(CheckListedTest, FindsWhatIsNotBuilt) {
  const std::vector<Source> sources = {
      MakeSource("tests/CMakeLists.txt", "# a_test.cc\nadd(other/b_test.cc xc_test.cc)"),
      MakeSource("tests/a_test.cc", ""), MakeSource("tests/b_test.cc", ""),
      MakeSource("tests/c_test.cc", "")};
  std::vector<std::string> paths;
  for (const Finding& finding : CheckListed(sources)) paths.push_back(finding.path);
  EXPECT_THAT(paths, ElementsAre("tests/a_test.cc", "tests/b_test.cc", "tests/c_test.cc"));
}

TEST(CheckAllTest, AppliesEveryRule) {
  const std::string long_line(101, 'x');
  const std::vector<Source> sources = {
      MakeSource("server/engine/a.h",
                 absl::StrCat("#include <grpcpp/grpcpp.h>\n#ifdef CUDA\n#endif\n// FIX"
                              "ME\n// ",
                              long_line, "\nvoid f(int a, int b, int c, int d, int e) {}\n")),
      MakeSource("server/engine/b.cc", "")};
  std::vector<std::string> places;
  for (const Finding& finding : CheckAll(sources)) {
    places.push_back(absl::StrCat(finding.path, ":", finding.line));
  }
  EXPECT_THAT(places, ::testing::UnorderedElementsAre("server/engine/a.h:1", "server/engine/a.h:1",
                                                      "server/engine/a.h:2", "server/engine/a.h:4",
                                                      "server/engine/a.h:5", "server/engine/a.h:6",
                                                      "server/engine/b.cc:0"));
}

}  // namespace
}  // namespace warpcall::tidy
