#include "tests/tidy/functions.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace warpcall::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "name line lines parameters" of each function.
std::vector<std::string> Scan(absl::string_view text) {
  std::vector<std::string> found;
  for (const Function& function : ScanFunctions(BlankCommentsAndLiterals(text))) {
    found.push_back(absl::StrCat(function.name, " ", function.line, " ", function.lines, " ",
                                 function.parameters));
  }
  return found;
}

TEST(ScanFunctionsTest, FindsFreeFunctions) {
  EXPECT_THAT(Scan("int f() { return 0; }\n\nvoid g(int a,\n       int b) {\n  if (a) {\n  }\n}\n"),
              ElementsAre("f 1 1 0", "g 3 5 2"));
}

TEST(ScanFunctionsTest, FindsMembersInNestedScopes) {
  EXPECT_THAT(Scan("namespace a {\nnamespace {\nclass B final : public C {\n public:\n"
                   "  int f(int x) const override { return x; }\n  int g_ = 0;\n};\n}\n"
                   "void B::g() {}\n}\n"),
              ElementsAre("f 5 1 1", "B::g 9 1 0"));
}

TEST(ScanFunctionsTest, FindsConstructorsWithBracedMembers) {
  EXPECT_THAT(Scan("A::A(int b, int c)\n    : b_{b}, c_(c), d_{} {\n  f();\n}\nA::~A() {}\n"),
              ElementsAre("A::A 1 4 2", "A::~A 5 1 0"));
}

TEST(ScanFunctionsTest, FindsOperatorsAndTemplates) {
  EXPECT_THAT(Scan("template <typename T, int N = 4>\nbool A<T>::operator==(const A& b) {\n}\n"
                   "void operator()(int a, int b) const {}\n"),
              ElementsAre(HasSubstr("operator== 1 3 1"), HasSubstr(" 4 1 2")));
}

TEST(ScanFunctionsTest, FindsTestsLambdasAndKernels) {
  EXPECT_THAT(Scan("TEST(A, B) {\n}\nconst auto f = [](int a) {\n  return a;\n};\n"
                   "__global__ void __launch_bounds__(256) k(const float* x) {}\n"),
              ElementsAre("TEST 1 2 2", "(lambda) 3 3 1", "k 6 1 1"));
}

TEST(ScanFunctionsTest, PassesOverTypesTablesAndDeclarations) {
  EXPECT_THAT(Scan("enum class A : int { kB, kC };\nconstexpr Row kRows[] = {\n  {1, f(2)},\n};\n"
                   "struct alignas(64) S {\n  int a{};\n  std::string b{\"(\"};\n};\n"
                   "void f(Options options = {});\nA* a = Make({1, 2});\n"
                   "const std::function<int(int)> kTable[] = {\n  f,\n};\n"),
              IsEmpty());
}

TEST(ScanFunctionsTest, CountsParametersByTopLevelCommas) {
  EXPECT_THAT(Scan("void f(std::map<int, int> a, void (*b)(int, int), S c = {1, 2}) {}\n"),
              ElementsAre("f 1 1 3"));
}

TEST(ScanFunctionsTest, IgnoresBracesInDirectivesCommentsAndLiterals) {
  EXPECT_THAT(Scan("#define OPEN {\nvoid f() {  // }\n  g('}', \"}\");\n}\nvoid h() {}\n"),
              ElementsAre("f 2 3 0", "h 5 1 0"));
}

std::string FunctionOfLines(int lines) {
  std::string text = "void f() {\n";
  for (int i = 0; i < lines - 2; ++i) absl::StrAppend(&text, "  g();\n");
  return absl::StrCat(text, "}\n");
}

TEST(CheckFunctionsTest, TakesTheLimitAndRefusesMore) {
  EXPECT_THAT(CheckFunctions(MakeSource("server/a.cc", FunctionOfLines(70))), IsEmpty());
  EXPECT_THAT(CheckFunctions(MakeSource("server/a.cc", FunctionOfLines(71))),
              ElementsAre(Finding{"server/a.cc", 1, "function f has 71 lines; the limit is 70"}));
}

TEST(CheckFunctionsTest, RefusesAFifthParameter) {
  EXPECT_THAT(CheckFunctions(MakeSource("a.cc", "void f(int a, int b, int c, int d) {}")),
              IsEmpty());
  EXPECT_THAT(CheckFunctions(MakeSource("a.cc", "\nvoid f(int a, int b, int c, int d, int e) {}")),
              ElementsAre(Finding{"a.cc", 2,
                                  "function f has 5 parameters; the limit is 4: group them in a "
                                  "struct"}));
}

}  // namespace
}  // namespace warpcall::tidy
