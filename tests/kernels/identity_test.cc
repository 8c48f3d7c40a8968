#include "kernels/identity/identity.h"

#include <gtest/gtest.h>

namespace warpcall {
namespace {

TEST(IdentityTest, WorkIsOneReadAndOneWrite) {
  const auto problem = MakeProblem(IdentityOp(), {{DataType::kFloat16, {3, 5}}}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(IdentityOp().work(*problem).bytes, 60);
  EXPECT_EQ(IdentityOp().work(*problem).flops, 0);
}

}  // namespace
}  // namespace warpcall
