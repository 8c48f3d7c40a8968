#include "kernels/gelu/gelu.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/common/half.h"
#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

using testing::Memory;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Problem GeluProblem(DataType type, int64_t elements, const char* approximate) {
  const NamedAttribute attribute{"approximate", std::string(approximate)};
  absl::StatusOr<Problem> problem = MakeProblem(GeluOp(), {{type, {elements}}}, {attribute});
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

// The definitions in long double, in the forms of the public contract where they do not cancel.
double Expected(double x, bool tanh) {
  const long double wide = x;
  if (!tanh)
    return static_cast<double>(wide / 2 * std::erfc(-wide / std::numbers::sqrt2_v<long double>));
  const long double a =
      std::sqrt(2 * std::numbers::inv_pi_v<long double>) * (wide + 0.044715L * wide * wide * wide);
  return static_cast<double>(wide / (1 + std::exp(-2 * a)));
}

// Float patterns in even steps, hence all exponents and both signs; every value of a 16-bit type.
Memory AllFiniteValues(DataType type, int64_t* elements) {
  constexpr uint32_t kStep = 16381;  // of float patterns: a quarter of a million values
  const uint64_t step = type == DataType::kFloat32 ? kStep : 1;
  const uint64_t patterns = type == DataType::kFloat32 ? uint64_t{1} << 32 : 1 << 16;
  Memory all(patterns / step * ElementBytes(type));
  int64_t count = 0;
  for (uint64_t i = 0; i < patterns / step; ++i) {
    const uint32_t bits = static_cast<uint32_t>(i * step);
    const uint16_t narrow = static_cast<uint16_t>(bits);
    const float value = type == DataType::kFloat32   ? std::bit_cast<float>(bits)
                        : type == DataType::kFloat16 ? ToFloat(Float16{narrow})
                                                     : ToFloat(BFloat16{narrow});
    if (std::isfinite(value)) testing::SetValue(all.data(), type, count++, value);
  }
  *elements = count;
  return all;
}

// Half the distance between neighbours of `type` around `value`.
double HalfUnit(double value, DataType type) {
  struct Format {
    int precision;  // bits of the significand
    int exponent_min;
  };
  const Format format = type == DataType::kFloat32   ? Format{24, -126}
                        : type == DataType::kFloat16 ? Format{11, -14}
                                                     : Format{8, -126};
  const int exponent = value == 0 ? format.exponent_min : std::ilogb(value);
  return std::ldexp(0.5, std::max(exponent, format.exponent_min) - format.precision + 1);
}

class GeluRowsTest : public ::testing::TestWithParam<DataType> {};

// Relative to |x|, in units of 2^-24 and beside the rounding of the result. Ours is 4; oneDNN's erf
// is formula 7.1.26 of Abramowitz and Stegun, which is off by 1.5e-7 before anything is rounded.
double UnitsAllowed(const Implementation& row) { return row.family == Family::kLibrary ? 6 : 4; }

// The error is bounded relative to |x| for every x, however small; what is less than 1e-34 in
// magnitude may come out as 0.
TEST_P(GeluRowsTest, ErrorIsSmallRelativeToXOverTheWholeRange) {
  const DataType type = GetParam();
  int64_t elements = 0;
  std::vector<Memory> inputs;
  inputs.push_back(AllFiniteValues(type, &elements));
  ASSERT_GT(elements, 60000);
  for (const char* approximate : {"tanh", "none"}) {
    const Problem problem = GeluProblem(type, elements, approximate);
    const bool tanh = gelu::UsesTanh(problem);
    for (const Implementation& row : GeluCpuRows()) {
      if (!row.supports(problem, testing::TestDeviceProperties()).ok()) continue;
      const auto outputs = RunRow(row, problem, inputs, 0xFF);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      double worst = 0;
      double worst_x = 0;
      for (int64_t i = 0; i < elements; ++i) {
        const double x = testing::ValueAt(inputs[0].data(), type, i);
        const double actual = testing::ValueAt((*outputs)[0].data(), type, i);
        const double expected = Expected(x, tanh);
        const double error = std::fabs(actual - expected) - HalfUnit(expected, type) - 1e-34;
        const double relative = error / std::fabs(x);
        if (x != 0 && !(relative <= worst)) {
          worst = relative;
          worst_x = x;
        }
      }
      std::printf("  %-16s %-8s %-4s worst error / |x| %.3g at %.9g\n", row.name,
                  DataTypeName(type), approximate, worst, worst_x);
      EXPECT_LE(worst, UnitsAllowed(row) * 0x1p-24)
          << row.name << " " << approximate << " at " << worst_x;
    }
  }
}

TEST_P(GeluRowsTest, LimitsAndNan) {
  const DataType type = GetParam();
  const float values[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0.0f,
                          -0.0f};
  constexpr int64_t kCount = std::size(values);
  std::vector<Memory> inputs;
  inputs.emplace_back(kCount * ElementBytes(type));
  for (int64_t i = 0; i < kCount; ++i) testing::SetValue(inputs[0].data(), type, i, values[i]);
  for (const char* approximate : {"tanh", "none"}) {
    const Problem problem = GeluProblem(type, kCount, approximate);
    for (const Implementation& row : GeluCpuRows()) {
      if (!row.supports(problem, testing::TestDeviceProperties()).ok()) continue;
      SCOPED_TRACE(row.name);
      const auto outputs = RunRow(row, problem, inputs, 0x42);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const void* const y = (*outputs)[0].data();
      EXPECT_EQ(testing::ValueAt(y, type, 0), kInfinity);
      EXPECT_EQ(testing::ValueAt(y, type, 1), 0.0f);
      EXPECT_TRUE(std::isnan(testing::ValueAt(y, type, 2)));
      EXPECT_EQ(testing::ValueAt(y, type, 3), 0.0f);
      EXPECT_EQ(testing::ValueAt(y, type, 4), 0.0f);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GeluRowsTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& param_info) { return DataTypeName(param_info.param); });

TEST(GeluTest, KnownValues) {
  std::vector<Memory> inputs;
  inputs.emplace_back(2 * sizeof(float));
  testing::SetValue(inputs[0].data(), DataType::kFloat32, 0, 1.0f);
  testing::SetValue(inputs[0].data(), DataType::kFloat32, 1, -2.0f);
  // To nine digits, as torch.nn.functional.gelu gives them in float64.
  const double expected[2][2] = {{0.841191991, -0.0454023059}, {0.841344746, -0.0455002639}};
  for (int form = 0; form < 2; ++form) {
    const Problem problem = GeluProblem(DataType::kFloat32, 2, form == 0 ? "tanh" : "none");
    for (const Implementation& row : GeluCpuRows()) {
      const auto outputs = RunRow(row, problem, inputs, 0xFF);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(testing::ValueAt((*outputs)[0].data(), DataType::kFloat32, i),
                    expected[form][i], 2e-7)
            << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace warpcall
