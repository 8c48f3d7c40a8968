// matmul by pairs of bfloat16, and by AMX, where the processor multiplies those: every edge of
// tiles and vectors, and values that the instructions would lose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_simd_pairs.h"
#include "kernels/matmul/matmul_simd_tiles.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall::matmul {
namespace {

namespace testing = warpcall::testing;
using testing::kInfinity;
using testing::Memory;

struct ProductSize {
  int64_t m;
  int64_t k;
  int64_t n;
};

struct Transposes {
  bool transpose_a;
  bool transpose_b;
};
constexpr Transposes kTransposes[] = {{false, false}, {true, false}, {false, true}, {true, true}};

float Flushed(float value) { return std::fabs(value) < 0x1p-126f ? 0 : value; }

// VDPBF16PS, of one lane and one half of its words (Intel SDM).
float AddByInstruction(float sum, float a, float b) {
  return Flushed(std::fma(Flushed(a), Flushed(b), Flushed(sum)));
}

// Smallest magnitude, as recorded for a row or a panel.
uint32_t Noted(const std::vector<float>& values) {
  uint32_t least = 0xFFFF;
  for (const float value : values)
    least = std::min<uint32_t>(least, (FromFloat<BFloat16>(value).bits - 1) & 0x7FFF);
  return least;
}

// Holds on any processor: if StaysNormal says so, the instruction sums as float32 does; one
// exponent below that it does not.
TEST(StaysNormalTest, SaysWhereTheInstructionIsExact) {
  std::mt19937_64 random(testing::RunSeed());
  int differs_below = 0;
  for (int round = 0; round < 200'000; ++round) {
    const int exponents = 138 + static_cast<int>(random() % 8);  // the sum of two
    const int a_exponent = 1 + static_cast<int>(random() % 100);
    std::vector<float> a;
    std::vector<float> b;
    // Few fraction bits, so that terms often cancel down to the last.
    const auto value = [&](int exponent) {
      const float magnitude = 1 + static_cast<float>(random() % 4) / 128;
      return std::ldexp(random() % 2 == 0 ? magnitude : -magnitude, exponent - 127);
    };
    for (int i = 0; i < 4; ++i) {
      a.push_back(value(a_exponent));
      b.push_back(value(exponents - a_exponent));
    }
    float exact = 0;
    float sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      exact = std::fma(a[i], b[i], exact);
      sum = AddByInstruction(sum, a[i], b[i]);
    }
    if (pairs::StaysNormal(Noted(a), Noted(b))) {
      ASSERT_EQ(sum, exact) << exponents << ", seed " << testing::RunSeed();
    } else if (exponents == 141) {
      differs_below += sum != exact;
    }
  }
  EXPECT_GT(differs_below, 0);
}

TEST(StaysNormalTest, ZerosAloneAndSubnormals) {
  constexpr uint32_t kZero = 0xFFFF;
  const uint32_t one = Noted({1});
  EXPECT_TRUE(pairs::StaysNormal(kZero, one));
  EXPECT_TRUE(pairs::StaysNormal(one, kZero));
  EXPECT_TRUE(pairs::StaysNormal(one, Noted({0x1p-112f})));
  EXPECT_FALSE(pairs::StaysNormal(one, Noted({0x1p-113f})));
  for (const float subnormal : {0x1p-133f, 0x1.FCp-127f}) {
    EXPECT_FALSE(pairs::StaysNormal(Noted({subnormal}), Noted({0x1p127f})));
    EXPECT_FALSE(pairs::StaysNormal(kZero, Noted({subnormal})));
  }
}

// A matrix by its elements, whichever way it lies.
struct Values {
  int64_t rows;
  int64_t columns;
  std::vector<float> at;

  Values(int64_t r, int64_t c) : rows(r), columns(c), at(static_cast<size_t>(r * c)) {}
  float& operator()(int64_t i, int64_t j) { return at[static_cast<size_t>(i * columns + j)]; }
  float operator()(int64_t i, int64_t j) const { return at[static_cast<size_t>(i * columns + j)]; }
};

Memory Laid(const Values& values, bool transposed) {
  Memory memory(values.at.size() * sizeof(BFloat16));
  auto* const to = static_cast<BFloat16*>(memory.data());
  for (int64_t i = 0; i < values.rows; ++i)
    for (int64_t j = 0; j < values.columns; ++j)
      to[transposed ? j * values.rows + i : i * values.columns + j] =
          FromFloat<BFloat16>(values(i, j));
  return memory;
}

class MatmulPairsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto names = row_.variant_names(DataType::kBFloat16);
    for (size_t v = 0; v < names.size(); ++v)
      if (names[v].find("pairs") != std::string::npos ||
          names[v].find("tiles") != std::string::npos)
        variants_.push_back(static_cast<int>(v));
    ASSERT_EQ(variants_.size(), tiles::Available() ? 5u : pairs::Available() ? 3u : 0u);
    if (variants_.empty()) GTEST_SKIP() << "this processor has no AVX512_BF16";
    ran_.resize(names.size());
  }

  void TearDown() override {
    for (const int variant : variants_) EXPECT_GT(ran_[static_cast<size_t>(variant)], 0) << variant;
  }

  // Nothing where the variant does not take the problem.
  std::optional<std::vector<Memory>> RunBy(int variant, const Problem& problem,
                                           const std::vector<Memory>& inputs) {
    auto outputs = testing::RunRow({row_, variant}, problem, inputs, /*poison=*/0x42);
    if (absl::IsInvalidArgument(outputs.status())) return std::nullopt;
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return std::nullopt;
    ++ran_[static_cast<size_t>(variant)];
    return *std::move(outputs);
  }

  // Multiplies by every variant in pairs, and by the row's choice.
  void ExpectProduct(const Values& a, const Values& b, const Values& c) {
    for (const Transposes& form : kTransposes) ExpectProduct(a, b, c, form);
  }

  const Implementation row_ = SimdTiledRow();
  std::vector<int> variants_;

 private:
  std::vector<int> ran_;  // problems, by variant

  void ExpectProduct(const Values& a, const Values& b, const Values& c, const Transposes& form) {
    Dims a_dims = {a.rows, a.columns};
    Dims b_dims = {b.rows, b.columns};
    if (form.transpose_a) std::swap(a_dims[0], a_dims[1]);
    if (form.transpose_b) std::swap(b_dims[0], b_dims[1]);
    const Problem problem =
        *MakeProblem(MatmulOp(), {{DataType::kBFloat16, a_dims}, {DataType::kBFloat16, b_dims}},
                     {{"transpose_a", form.transpose_a}, {"transpose_b", form.transpose_b}});
    std::vector<Memory> inputs;
    inputs.push_back(Laid(a, form.transpose_a));
    inputs.push_back(Laid(b, form.transpose_b));
    for (const int variant : variants_) {
      SCOPED_TRACE(::testing::Message()
                   << a.rows << " x " << a.columns << " by " << b.rows << " x " << b.columns
                   << (form.transpose_a ? ", a transposed" : "")
                   << (form.transpose_b ? ", b transposed" : "") << ", variant " << variant);
      const auto outputs = RunBy(variant, problem, inputs);
      if (!outputs.has_value()) continue;
      const auto* const got = static_cast<const BFloat16*>((*outputs)[0].data());
      for (int64_t i = 0; i < c.rows * c.columns; ++i) {
        const float expected = c.at[static_cast<size_t>(i)];
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(ToFloat(got[i]))) << ToFloat(got[i]) << " at " << i;
        } else {
          ASSERT_EQ(ToFloat(got[i]), expected) << "at " << i;
        }
      }
    }
  }
};

// Sums of integers that bfloat16 has: one lost, doubled or misplaced term shows.
TEST_F(MatmulPairsTest, EveryEdgeOfTilesVectorsAndPairs) {
  std::mt19937_64 random(testing::RunSeed());
  const auto integer = [&] { return static_cast<float>(static_cast<int>(random() % 3) - 1); };
  std::vector<ProductSize> sizes;
  for (int64_t n = 1; n <= pairs::kPanelColumns + 1; ++n)
    for (int64_t m = 1; m <= pairs::kTileRows + 1; ++m) sizes.push_back({m, 1 + (m + n) % 5, n});
  for (const int64_t k : {1, 2, 3, 30, 31, 32, 33, 34, 63, 64, 65}) sizes.push_back({17, k, 35});
  for (const int64_t m : {15, 16, 17, 31, 32, 33}) sizes.push_back({m, 5, 3});
  // Slices of k, whole and not, and one term more.
  for (const int64_t k : {pairs::kDepth - 1, pairs::kDepth, pairs::kDepth + 1})
    sizes.push_back({7, k, 65});
  sizes.push_back({3, 2 * pairs::kDepth + 33, 20});
  // Few rows, to the last, and their terms.
  for (int64_t n = 1; n <= 2 * pairs::kFewColumns + 1; ++n)
    for (const int64_t m : {8, 9, 17, 48}) sizes.push_back({m, 33 + n, n});
  for (const int64_t k : {pairs::kFewDepth - 1, pairs::kFewDepth, pairs::kFewDepth + 1})
    for (const int64_t m : {1, 5, 8}) sizes.push_back({m, k, 4});
  // Blocks of rows and of columns.
  sizes.push_back({pairs::kStagedRows + 1, 3, 2});
  sizes.push_back({5, 2, 1025});
  sizes.push_back({41, 2, 514});
  for (const ProductSize& size : sizes) {
    Values a(size.m, size.k);
    Values b(size.k, size.n);
    Values c(size.m, size.n);
    absl::c_generate(a.at, integer);
    absl::c_generate(b.at, integer);
    for (int64_t i = 0; i < size.m; ++i)
      for (int64_t j = 0; j < size.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < size.k; ++p) sum += a(i, p) * b(p, j);
        c(i, j) = ToFloat(FromFloat<BFloat16>(sum));
      }
    ExpectProduct(a, b, c);
    if (HasFatalFailure()) return;
  }
}

// Two products leave the last bit of their operands' last bits: 2^e with the sum of two exponents,
// which goes from where all is normal to far below. A lone 1 in another row and column of the same
// tile takes part in nothing.
TEST_F(MatmulPairsTest, SumsThatTheInstructionWouldFlushAreKept) {
  constexpr float kBit = 0x1p-7f;
  for (int sum = -133 + 14; sum <= -108; ++sum) {
    for (const int a_exponent : {-126, -100, sum / 2, -20}) {
      const int b_exponent = sum - a_exponent;
      if (b_exponent < -126) continue;
      for (const int64_t distance : {1, 2}) {  // within a pair, and over two
        Values a(2, 1 + distance);
        Values b(1 + distance, 2);
        a(0, 0) = std::ldexp(1 + kBit, a_exponent);
        b(0, 0) = std::ldexp(1 + kBit, b_exponent);
        a(0, distance) = std::ldexp(1.0f, a_exponent);
        b(distance, 0) = -std::ldexp(1 + 2 * kBit, b_exponent);
        Values c(2, 2);
        c(0, 0) = std::ldexp(1.0f, sum - 14);
        ASSERT_NE(c(0, 0), 0);
        ExpectProduct(a, b, c);
        if (HasFatalFailure()) FAIL() << "exponents " << a_exponent << " and " << b_exponent;
      }
    }
  }
}

// The other rows and columns are ordinary, and of other slices of k.
TEST_F(MatmulPairsTest, SubnormalElementsAreKept) {
  constexpr int64_t kK = pairs::kFewDepth + 70, kN = 70;
  constexpr float kSubnormal = 0x1p-133f;
  for (const int64_t m : {5, 14}) {
    for (const int64_t p : {int64_t{0}, int64_t{33}, pairs::kDepth - 1, kK - 1}) {
      for (const bool in_a : {false, true}) {
        Values a(m, kK);
        Values b(kK, kN);
        a(m - 1, p) = in_a ? kSubnormal : 0x1p100f;
        b(p, 69) = in_a ? 0x1p100f : kSubnormal;
        a(2, 5) = 3;
        b(5, 7) = 5;
        Values c(m, kN);
        c(m - 1, 69) = 0x1p-33f;
        c(2, 7) = 15;
        ExpectProduct(a, b, c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MatmulPairsTest, SubnormalTimesInfinityIsInfiniteAndZeroTimesInfinityIsNot) {
  Values a(7, 3);
  Values b(3, 65);
  for (int64_t j = 0; j < 65; ++j) b(0, j) = j % 2 == 0 ? kInfinity : -kInfinity;
  a(1, 0) = 0x1p-133f;
  Values c(7, 65);
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 65; ++j) c(i, j) = i == 1 ? b(0, j) : std::nanf("");
  ExpectProduct(a, b, c);
}

// The memory behind an operand's last term belongs to another matrix.
TEST_F(MatmulPairsTest, NeighboursInABatchReachNothing) {
  constexpr int64_t kK = 35, kN = 70;
  for (const auto& [m, form] : {std::pair{13, kTransposes[0]},
                                {13, kTransposes[1]},
                                {13, kTransposes[2]},
                                {13, kTransposes[3]},
                                {5, kTransposes[2]},
                                {5, kTransposes[3]}}) {
    const Dims a_dims = form.transpose_a ? Dims{2, kK, m} : Dims{2, m, kK};
    const Dims b_dims = form.transpose_b ? Dims{2, kN, kK} : Dims{2, kK, kN};
    const Problem problem =
        *MakeProblem(MatmulOp(), {{DataType::kBFloat16, a_dims}, {DataType::kBFloat16, b_dims}},
                     {{"transpose_a", form.transpose_a}, {"transpose_b", form.transpose_b}});
    std::vector<Memory> inputs;
    for (const TensorSpec& spec : problem.inputs) {
      inputs.emplace_back(spec.bytes());
      auto* const to = static_cast<BFloat16*>(inputs.back().data());
      for (int64_t i = 0; i < spec.elements(); ++i)
        to[i] = FromFloat<BFloat16>(i < spec.elements() / 2 ? 1.0f : std::nanf(""));
    }
    for (const int variant : variants_) {
      const auto outputs = RunBy(variant, problem, inputs);
      if (!outputs.has_value()) continue;
      const auto* const got = static_cast<const BFloat16*>((*outputs)[0].data());
      for (int64_t i = 0; i < m * kN; ++i) {
        ASSERT_EQ(ToFloat(got[i]), kK) << "variant " << variant << " at " << i;
        ASSERT_TRUE(std::isnan(ToFloat(got[m * kN + i]))) << i;
      }
    }
  }
}

// A term of a padded pair, or of a panel's missing columns, would make NaN of these.
TEST_F(MatmulPairsTest, WhatPaddingHoldsReachesNothing) {
  for (const int64_t k : {1, 3, 33}) {
    Values a(5, k);
    Values b(k, 17);
    absl::c_fill(a.at, kInfinity);
    absl::c_fill(b.at, 1.0f);
    Values c(5, 17);
    absl::c_fill(c.at, kInfinity);
    ExpectProduct(a, b, c);
  }
}

TEST(MatmulPairsChoice, FewRowsAreThoseThatRepayNoPacking) {
  if (!pairs::Available()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  const Implementation row = SimdTiledRow();
  const auto names = row.variant_names(DataType::kBFloat16);
  const auto chosen = [&](const ProductSize& size, bool transpose_b) -> std::string {
    const Dims b = transpose_b ? Dims{size.n, size.k} : Dims{size.k, size.n};
    const Problem problem = *MakeProblem(
        MatmulOp(), {{DataType::kBFloat16, {size.m, size.k}}, {DataType::kBFloat16, b}},
        {{"transpose_b", transpose_b}});
    const auto plan = row.plan(problem, {.device = &testing::TestDeviceProperties()});
    return plan.ok() ? names[static_cast<size_t>((*plan)->traits().variant)] : "none";
  };
  EXPECT_EQ(chosen({8, 2, 100}, true), "few rows in pairs");
  if (tiles::Available()) {
    EXPECT_EQ(chosen({8, 2, 100}, false), "few rows");
    EXPECT_EQ(chosen({9, 2, 100}, true), "shared matrix in tiles");
    return;
  }
  EXPECT_EQ(chosen({4, 2, 100}, false), "few rows");
  EXPECT_EQ(chosen({5, 2, 100}, false), "shared matrix in pairs");
  EXPECT_EQ(chosen({24, 2, 9}, false), "few rows");
  EXPECT_EQ(chosen({24, 2048, 1025}, false), "few rows");  // more than caches hold
  EXPECT_EQ(chosen({16, 2, 100}, true), "few rows in pairs");
  EXPECT_EQ(chosen({17, 127, 100}, true), "shared matrix in pairs");
  EXPECT_EQ(chosen({48, 128, 100}, true), "few rows in pairs");
  EXPECT_EQ(chosen({49, 128, 100}, true), "shared matrix in pairs");
}

}  // namespace
}  // namespace warpcall::matmul
