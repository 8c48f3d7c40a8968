#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/vector_targets.h"

namespace warpcall::matmul {
namespace {

namespace testing = warpcall::testing;
using testing::Memory;

TensorSpec Spec(DataType type, Dims dims) { return {.data_type = type, .dims = std::move(dims)}; }

absl::StatusOr<Problem> Make(Dims a, Dims b, std::vector<NamedAttribute> attributes = {},
                             DataType type = DataType::kFloat32) {
  return MakeProblem(MatmulOp(), {Spec(type, std::move(a)), Spec(type, std::move(b))}, attributes);
}

void ExpectRefused(const absl::StatusOr<Problem>& problem, absl::string_view message) {
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument) << problem.status();
  EXPECT_NE(problem.status().message().find(std::string(message)), absl::string_view::npos)
      << problem.status();
}

TEST(MatmulShapeTest, OutputHasBroadcastBatchesAndBothOuterSizes) {
  const NamedAttribute ta{"transpose_a", true};
  const NamedAttribute tb{"transpose_b", true};
  EXPECT_EQ(Make({2, 3}, {3, 4})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({3, 2}, {3, 4}, {ta})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({2, 3}, {4, 3}, {tb})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({3, 2}, {4, 3}, {ta, tb})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({5, 1, 2, 3}, {6, 3, 4})->outputs[0].dims, Dims({5, 6, 2, 4}));
  EXPECT_EQ(Make({2, 3}, {1, 1, 1, 1, 1, 7, 3, 4})->outputs[0].dims,
            Dims({1, 1, 1, 1, 1, 7, 2, 4}));
  EXPECT_EQ(Make({0, 2, 3}, {1, 3, 4})->outputs[0].dims, Dims({0, 2, 4}));
  EXPECT_EQ(Make({2, 0}, {0, 4})->outputs[0].dims, Dims({2, 4}));
  EXPECT_EQ(Make({2, 3}, {3, 4}, {}, DataType::kBFloat16)->outputs[0].data_type,
            DataType::kBFloat16);
}

TEST(MatmulShapeTest, RefusalsNameValuesAndLimits) {
  ExpectRefused(Make({2, 3}, {4, 5}),
                "inner dimensions differ: k is 3 in a float32[2,3] and 4 in b float32[4,5]");
  ExpectRefused(Make({2, 3}, {3, 5}, {{"transpose_a", true}}),
                "k is 2 in a float32[2,3] (transposed) and 3 in b float32[3,5]");
  ExpectRefused(Make({3}, {3, 5}), "input 0 (a) has rank 1; ranks 2 to 8 are allowed");
  ExpectRefused(Make({2, 3}, {3}), "input 1 (b) has rank 1; ranks 2 to 8 are allowed");
  ExpectRefused(Make({2, 4, 5}, {3, 5, 6}), "has 2 where b float32[3,5,6] has 3");
  ExpectRefused(Make({0, 4, 5}, {3, 5, 6}), "has 0 where b float32[3,5,6] has 3");
  ExpectRefused(Make({2, 3}, {3, 4}, {{"precision", std::string("tf32")}}, DataType::kFloat16),
                "precision=\"tf32\" takes float32 inputs, got float16");
  ExpectRefused(Make({2, 3}, {3, 4}, {{"precision", std::string("fp8")}}), "fp8");
  ExpectRefused(
      MakeProblem(MatmulOp(), {Spec(DataType::kFloat32, {2, 3}), Spec(DataType::kFloat16, {3, 2})},
                  {}),
      "one data type, got a float32, b float16");
}

TEST(MatmulShapeTest, OutputThatOverflowsIsRefused) {
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ(Make({large, 1}, {1, large}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MatmulShapeTest, Tf32IsForFloat32) {
  EXPECT_TRUE(Make({2, 3}, {3, 4}, {{"precision", std::string("tf32")}}).ok());
}

TEST(MatmulWorkTest, CountsTwoOperationsPerTermAndEachTensorOnce) {
  const Work work = MatmulOp().work(*Make({5, 2, 3}, {3, 4}, {}, DataType::kFloat16));
  EXPECT_EQ(work.flops, 2 * 5 * 2 * 3 * 4);
  EXPECT_EQ(work.bytes, 2 * (5 * 2 * 3 + 3 * 4 + 5 * 2 * 4));
}

TEST(MatmulWorkTest, SaturatesInsteadOfOverflowing) {
  const int64_t large = int64_t{1} << 30;
  const Work work = MatmulOp().work(*Make({large, large}, {large, large}));
  EXPECT_EQ(work.flops, std::numeric_limits<int64_t>::max());
  EXPECT_GT(work.bytes, int64_t{1} << 62);
}

TEST(MatmulDecodeTest, BatchesThatShareOneBBecomeRows) {
  const Shape shape = DecodeShape(*Make({7, 5, 2, 3}, {3, 4}));
  EXPECT_EQ(shape.m, 7 * 5 * 2);
  EXPECT_EQ(shape.batches(), 1);
}

TEST(MatmulDecodeTest, NeighbouringBatchDimensionsMerge) {
  const Shape shape = DecodeShape(*Make({7, 5, 2, 3}, {7, 5, 3, 4}));
  EXPECT_EQ(shape.m, 2);
  ASSERT_EQ(shape.batch.size(), 1u);
  EXPECT_EQ(shape.batch[0].size, 35);
}

TEST(MatmulDecodeTest, OffsetsFollowBroadcasting) {
  const Shape shape = DecodeShape(*Make({2, 1, 3, 2}, {5, 3, 4}, {{"transpose_a", true}}));
  ASSERT_EQ(shape.batches(), 10);
  const Offsets offsets = shape.BatchOffsets(7);  // [1, 2]
  EXPECT_EQ(offsets.a, 1 * 6);
  EXPECT_EQ(offsets.b, 2 * 12);
  EXPECT_EQ(offsets.c, 7 * 8);
}

// Products and sums of such integers are exact in float32, in any order.
float SmallInteger(std::mt19937_64& random) {
  return static_cast<float>(static_cast<int>(random() % 5) - 2);
}

std::mt19937_64 Random() { return std::mt19937_64(testing::RunSeed()); }

Memory Generate(const TensorSpec& spec, absl::FunctionRef<float()> next) {
  Memory memory(spec.bytes());
  for (int64_t i = 0; i < spec.elements(); ++i)
    testing::SetValue(memory.data(), spec.data_type, i, next());
  return memory;
}

std::vector<float> Values(const TensorSpec& spec, const Memory& memory) {
  std::vector<float> values;
  for (int64_t i = 0; i < spec.elements(); ++i)
    values.push_back(testing::ValueAt(memory.data(), spec.data_type, i));
  return values;
}

// Poison of 0xFF bytes is NaN in every type: it shows wherever it is read or left standing.
std::vector<float> RunValues(const Implementation& row, const Problem& problem,
                             const std::vector<Memory>& inputs) {
  const absl::StatusOr<std::vector<Memory>> outputs =
      testing::RunRow(row, problem, inputs, /*poison=*/0xFF);
  EXPECT_TRUE(outputs.ok()) << row.name << ": " << outputs.status();
  return outputs.ok() ? Values(problem.outputs[0], (*outputs)[0]) : std::vector<float>();
}

// The rows that take `problem`.
std::vector<Implementation> RowsFor(const Problem& problem) {
  std::vector<Implementation> rows = MatmulCpuRows();
  std::erase_if(rows, [&](const Implementation& row) {
    return !row.supports(problem, testing::TestDeviceProperties()).ok();
  });
  return rows;
}

// Which matrix of `input` the output matrix `at` is made of, by walking full indices.
int64_t MatrixIndex(const Problem& problem, int input, int64_t at) {
  const Dims& dims = problem.inputs[input].dims;
  const Dims& c_dims = problem.outputs[0].dims;
  int64_t index = 0;
  int64_t stride = 1;
  for (size_t i = 3; i <= dims.size(); ++i) {
    const int64_t position = at % c_dims[c_dims.size() - i];
    at /= c_dims[c_dims.size() - i];
    if (dims[dims.size() - i] > 1) index += position * stride;
    stride *= dims[dims.size() - i];
  }
  return index;
}

// The sums from the definition, each rounded to the output's type.
std::vector<float> ByDefinition(const Problem& problem, const std::vector<Memory>& inputs) {
  const std::vector<float> a = Values(problem.inputs[0], inputs[0]);
  const std::vector<float> b = Values(problem.inputs[1], inputs[1]);
  const bool transpose_a = std::get<bool>(problem.attributes[kTransposeA]);
  const bool transpose_b = std::get<bool>(problem.attributes[kTransposeB]);
  const TensorSpec& c = problem.outputs[0];
  const int64_t m = c.dims.end()[-2];
  const int64_t n = c.dims.end()[-1];
  const int64_t k = problem.inputs[0].dims.end()[transpose_a ? -2 : -1];
  std::vector<float> sums(c.elements(), 0.0f);
  for (int64_t at = 0; at < c.elements() / (m * n); ++at) {
    const float* const am = a.data() + MatrixIndex(problem, 0, at) * m * k;
    const float* const bm = b.data() + MatrixIndex(problem, 1, at) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      float* const row = sums.data() + (at * m + i) * n;
      for (int64_t p = 0; p < k; ++p) {
        const float x = transpose_a ? am[p * m + i] : am[i * k + p];
        for (int64_t j = 0; j < n; ++j) row[j] += x * (transpose_b ? bm[j * k + p] : bm[p * n + j]);
      }
    }
  }
  size_t next = 0;
  return Values(c, Generate(c, [&] { return sums[next++]; }));
}

void ExpectEqual(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(actual[i], expected[i]) << "element " << i << " of " << actual.size();
}

// Every row on integers, the vectorised one on every instruction set: equal to the definition to
// the last bit, so that one lost, doubled or misplaced term among any number shows.
void ExpectExact(const Problem& problem) {
  SCOPED_TRACE(absl::StrCat(ToString(problem.inputs[0]), " by ", ToString(problem.inputs[1]),
                            ", seed ", testing::RunSeed()));
  std::mt19937_64 random = Random();
  const auto next = [&] { return SmallInteger(random); };
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem.inputs) inputs.push_back(Generate(spec, next));
  const std::vector<float> expected = ByDefinition(problem, inputs);
  for (const Implementation& row : RowsFor(problem)) {
    SCOPED_TRACE(row.name);
    if (row.family != Family::kCpu) {
      ExpectEqual(RunValues(row, problem, inputs), expected);
      continue;
    }
    for (const int64_t target : testing::VectorTargets()) {
      SCOPED_TRACE(testing::VectorTargetName(target));
      const testing::ScopedVectorTarget scoped(target);
      ExpectEqual(RunValues(row, problem, inputs), expected);
    }
  }
}

struct Shapes {
  Dims a;
  Dims b;
};

// In every data type and with each input as it is and transposed.
void ExpectExactInEveryForm(const Shapes& shapes) {
  for (const DataType type : kDataTypes) {
    for (const int form : {0, 1, 2, 3}) {
      const bool transpose_a = (form & 1) != 0;
      const bool transpose_b = (form & 2) != 0;
      Shapes x = shapes;
      if (transpose_a) std::swap(x.a.end()[-1], x.a.end()[-2]);
      if (transpose_b) std::swap(x.b.end()[-1], x.b.end()[-2]);
      const absl::StatusOr<Problem> problem =
          Make(x.a, x.b, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}}, type);
      ASSERT_TRUE(problem.ok()) << problem.status();
      ExpectExact(*problem);
    }
  }
}

// Sizes above two million terms are shared by threads.
TEST(MatmulExactTest, MatricesSharedByThreads) {
  for (const Shapes& x : {Shapes{{301, 130}, {130, 71}}, Shapes{{24, 257}, {257, 1100}},
                          Shapes{{520, 130}, {130, 40}}, Shapes{{20, 3000}, {3000, 45}}})
    ExpectExactInEveryForm(x);
}

TEST(MatmulExactTest, FewRowsAndFewColumns) {
  for (const Shapes& x :
       {Shapes{{1, 1500}, {1500, 91}}, Shapes{{2, 1100}, {1100, 1030}}, Shapes{{3, 521}, {521, 70}},
        Shapes{{1801, 1300}, {1300, 1}}, Shapes{{4, 515}, {515, 60}}, Shapes{{1, 5000}, {5000, 1}}})
    ExpectExactInEveryForm(x);
}

TEST(MatmulExactTest, ManyMatrices) {
  for (const Shapes& x :
       {Shapes{{60, 41, 40}, {60, 40, 31}}, Shapes{{5, 1, 3, 9, 41}, {4, 3, 41, 7}},
        Shapes{{3, 2, 1, 300}, {2, 300, 450}}, Shapes{{4, 3, 50, 40}, {40, 70}},
        Shapes{{40, 70}, {6, 5, 70, 30}}})
    ExpectExactInEveryForm(x);
}

TEST(MatmulExactTest, EdgesOfTilesAndVectors) {
  for (const Shapes& x : {Shapes{{61, 259}, {259, 50}}, Shapes{{7, 5}, {5, 9}},
                          Shapes{{13, 20}, {20, 33}}, Shapes{{12, 256}, {256, 32}}})
    ExpectExactInEveryForm(x);
}

TEST(MatmulExactTest, Tf32PermissionKeepsFullPrecisionOnTheCpu) {
  const Problem problem = *Make({1, 1}, {1, 1}, {{"precision", std::string("tf32")}});
  const float fine = 1 + 0x1p-23f;  // tf32 has 10 fraction bits
  std::vector<Memory> inputs;
  inputs.push_back(Generate(problem.inputs[0], [&] { return fine; }));
  inputs.push_back(Generate(problem.inputs[1], [] { return 1.0f; }));
  for (const Implementation& row : RowsFor(problem))
    EXPECT_EQ(RunValues(row, problem, inputs)[0], fine) << row.name;
}

class MatmulSpecialTest : public ::testing::TestWithParam<DataType> {
 protected:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  float SmallestSubnormal() const {
    if (GetParam() == DataType::kFloat16) return 0x1p-24f;
    return GetParam() == DataType::kBFloat16 ? 0x1p-133f : 0x1p-149f;
  }

  // What a sum is, where it is not finite; finite ones are checked by conformance.
  static std::string Class(float value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+infinity" : "-infinity";
    return "finite";
  }
};

TEST_P(MatmulSpecialTest, RowsAgreeWithTheReferenceOnWhatIsNotFinite) {
  std::mt19937_64 random = Random();
  const float specials[] = {std::nanf(""), kInfinity, -kInfinity,         0.0f,
                            -0.0f,         0.0f,      SmallestSubnormal()};
  const auto next = [&] {
    return random() % 16 == 0 ? specials[random() % std::size(specials)] : SmallInteger(random);
  };
  for (const Shapes& x :
       {Shapes{{1, 35}, {35, 70}}, Shapes{{3, 9}, {9, 67}}, Shapes{{45, 17}, {17, 1}},
        Shapes{{37, 5}, {5, 49}}, Shapes{{37, 33}, {33, 49}}, Shapes{{4, 9, 7}, {7, 35}}}) {
    for (const bool transpose_b : {false, true}) {
      Dims b_dims = x.b;
      if (transpose_b) std::swap(b_dims.end()[-1], b_dims.end()[-2]);
      const Problem problem = *Make(x.a, b_dims, {{"transpose_b", transpose_b}}, GetParam());
      std::vector<Memory> inputs;
      for (const TensorSpec& spec : problem.inputs) inputs.push_back(Generate(spec, next));
      const std::vector<float> expected = RunValues(Float64Row(), problem, inputs);
      for (const Implementation& row : RowsFor(problem)) {
        const std::vector<float> actual = RunValues(row, problem, inputs);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_EQ(Class(actual[i]), Class(expected[i]))
              << row.name << " " << ToString(problem.inputs[0]) << " element " << i << ", seed "
              << testing::RunSeed();
      }
    }
  }
}

TEST_P(MatmulSpecialTest, SubnormalTimesInfinityIsInfinite) {
  const Problem problem = *Make({48, 48}, {48, 48}, {}, GetParam());
  std::vector<Memory> inputs;
  inputs.push_back(Generate(problem.inputs[0], [&] { return SmallestSubnormal(); }));
  inputs.push_back(Generate(problem.inputs[1], [] { return -kInfinity; }));
  for (const Implementation& row : RowsFor(problem))
    for (const float value : RunValues(row, problem, inputs))
      ASSERT_EQ(Class(value), "-infinity") << row.name;
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulSpecialTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& type) { return std::string(DataTypeName(type.param)); });

}  // namespace
}  // namespace warpcall::matmul
