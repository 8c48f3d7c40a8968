#include "proto/common/check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace warpcall {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static_assert(WARPCALL_DCHECK_IS_ON);
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
static_assert(WARPCALL_DCHECK_IS_ON);
#endif
#endif

enum class Phase : uint8_t { kWaiting = 3 };

TEST(Check, PassesWhenTheExpressionIsTrue) {
  int evaluated = 0;
  WARPCALL_CHECK(++evaluated == 1);
  WARPCALL_CHECK(evaluated == 1, ++evaluated);
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, NamesPlaceExpressionAndValues) {
  const int64_t used = 5;
  const size_t total = 4;
  EXPECT_DEATH(WARPCALL_CHECK(used == 4),
               "invariant broken at .*check_test.cc:[0-9]+: used == 4\n");
  EXPECT_DEATH(WARPCALL_CHECK(used == 4, used, total),
               "check_test.cc:[0-9]+: used == 4 \\(used, total: 5, 4\\)\n");
}

TEST(CheckDeathTest, WritesEveryKindOfValue) {
  const std::string name = "pool";
  const absl::string_view view = "a view";
  const auto* const address = reinterpret_cast<const int*>(0xabc);
  EXPECT_DEATH(WARPCALL_CHECK(name.empty(), name, view, "text", address, Phase::kWaiting, true, 0.5,
                              nullptr == address),
               "pool, a view, text, 0xabc, 3, true, 0.5[0]*, false\\)\n");
}

TEST(CheckDeathTest, ExpressionsMayHaveCommas) {
  const auto add = [](int a, int b) { return a + b; };
  EXPECT_DEATH(WARPCALL_CHECK(add(1, 2) == 4), "add\\(1, 2\\) == 4\n");
}

TEST(CheckDeathTest, DebugChecksEvaluateNothingWhereTheyAreOff) {
  int evaluated = 0;
  const auto fails = [&] { WARPCALL_DCHECK(++evaluated == 2, evaluated); };
  if (WARPCALL_DCHECK_IS_ON) {
    EXPECT_DEATH(fails(), "\\+\\+evaluated == 2 \\(evaluated: 1\\)\n");
  } else {
    fails();
    EXPECT_EQ(evaluated, 0);
  }
}

TEST(CheckDeathTest, StandsInAnIfWithoutBraces) {
  const bool wrong = true;
  if (!wrong)
    WARPCALL_CHECK(false);
  else
    EXPECT_DEATH(WARPCALL_CHECK(!wrong), "!wrong\n");
}

}  // namespace
}  // namespace warpcall
