#include "kernels/identity/identity.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

// Every 16-bit pattern twice over, which holds every float32 exponent and NaNs of both kinds.
TEST(IdentityTest, EveryRowKeepsEveryBit) {
  constexpr int64_t kPatterns = 65536;
  testing::Memory input(2 * kPatterns * sizeof(uint16_t));
  auto* const patterns = static_cast<uint16_t*>(input.data());
  for (int64_t i = 0; i < 2 * kPatterns; ++i) patterns[i] = static_cast<uint16_t>(i);
  std::vector<testing::Memory> inputs;
  inputs.push_back(std::move(input));
  for (const Implementation& row : IdentityCpuRows()) {
    for (DataType type : row.data_types) {
      const int64_t elements = static_cast<int64_t>(inputs[0].bytes() / ElementBytes(type));
      const auto problem = MakeProblem(IdentityOp(), {{type, {elements}}}, {});
      ASSERT_TRUE(problem.ok()) << problem.status();
      const auto outputs = RunRow(row, *problem, inputs, 0x5A);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ(std::memcmp((*outputs)[0].data(), inputs[0].data(), inputs[0].bytes()), 0)
          << row.name << " " << DataTypeName(type);
    }
  }
}

TEST(IdentityTest, WorkIsOneReadAndOneWrite) {
  const auto problem = MakeProblem(IdentityOp(), {{DataType::kFloat16, {3, 5}}}, {});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(IdentityOp().work(*problem).bytes, 60);
  EXPECT_EQ(IdentityOp().work(*problem).flops, 0);
}

}  // namespace
}  // namespace warpcall
