// matmul on numbers whose products and sums are exact, and on NaN and infinity: every row of every
// device, which owe the same answer to the last bit whatever the order of their sums.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/matmul/matmul.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/vector_targets.h"

namespace warpcall::matmul {
namespace {

namespace testing = warpcall::testing;
using testing::Memory;
using testing::TestedRow;

struct Shapes {
  Dims a;
  Dims b;
};

absl::StatusOr<Problem> Make(const Shapes& shapes, DataType type,
                             std::vector<NamedAttribute> attributes) {
  return MakeProblem(MatmulOp(), {{type, shapes.a}, {type, shapes.b}}, attributes);
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
std::vector<float> RunValues(const TestedRow& row, const Problem& problem,
                             const std::vector<Memory>& inputs) {
  const absl::StatusOr<std::vector<Memory>> outputs =
      testing::RunTested(row, problem, inputs, /*poison=*/0xFF);
  EXPECT_TRUE(outputs.ok()) << row.name << ": " << outputs.status();
  return outputs.ok() ? Values(problem.outputs[0], (*outputs)[0]) : std::vector<float>();
}

// The rows that take `problem`: none when it is too large for the tool that this runs under.
std::vector<TestedRow> RowsFor(const Problem& problem) {
  if (!testing::IsSmallEnough(problem)) return {};
  std::vector<TestedRow> rows = testing::TestedRows(MatmulOp());
  std::erase_if(rows, [&](const TestedRow& row) { return !Supports(row, problem).ok(); });
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

// Every row on integers: equal to the definition to the last bit, so that one lost, doubled or
// misplaced term among any number shows.
void ExpectExact(const Problem& problem) {
  SCOPED_TRACE(absl::StrCat(ToString(problem.inputs[0]), " by ", ToString(problem.inputs[1]),
                            ", seed ", testing::RunSeed()));
  std::mt19937_64 random = Random();
  const auto next = [&] { return SmallInteger(random); };
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem.inputs) inputs.push_back(Generate(spec, next));
  const std::vector<float> expected = ByDefinition(problem, inputs);
  for (const TestedRow& row : RowsFor(problem)) {
    SCOPED_TRACE(row.name);
    ExpectEqual(RunValues(row, problem, inputs), expected);
  }
}

// With each input as it is and transposed.
void ExpectExactInEveryForm(const Shapes& shapes, DataType type, const char* precision) {
  for (const int form : {0, 1, 2, 3}) {
    const bool transpose_a = (form & 1) != 0;
    const bool transpose_b = (form & 2) != 0;
    Shapes x = shapes;
    if (transpose_a) std::swap(x.a.end()[-1], x.a.end()[-2]);
    if (transpose_b) std::swap(x.b.end()[-1], x.b.end()[-2]);
    const absl::StatusOr<Problem> problem = Make(x, type,
                                                 {{"transpose_a", transpose_a},
                                                  {"transpose_b", transpose_b},
                                                  {"precision", std::string(precision)}});
    ASSERT_TRUE(problem.ok()) << problem.status();
    ExpectExact(*problem);
  }
}

void ExpectExactInEveryType(const Shapes& shapes) {
  for (const DataType type : kDataTypes) ExpectExactInEveryForm(shapes, type, "ieee");
}

// Sizes above two million terms are shared by threads.
TEST(MatmulExactTest, MatricesSharedByThreads) {
  for (const Shapes& x : {Shapes{{301, 130}, {130, 71}}, Shapes{{24, 257}, {257, 1100}},
                          Shapes{{520, 130}, {130, 40}}, Shapes{{20, 3000}, {3000, 45}}})
    ExpectExactInEveryType(x);
}

TEST(MatmulExactTest, FewRowsAndFewColumns) {
  for (const Shapes& x :
       {Shapes{{1, 1500}, {1500, 91}}, Shapes{{2, 1100}, {1100, 1030}}, Shapes{{3, 521}, {521, 70}},
        Shapes{{1801, 1300}, {1300, 1}}, Shapes{{4, 515}, {515, 60}}, Shapes{{1, 5000}, {5000, 1}}})
    ExpectExactInEveryType(x);
}

TEST(MatmulExactTest, ManyMatrices) {
  for (const Shapes& x :
       {Shapes{{60, 41, 40}, {60, 40, 31}}, Shapes{{5, 1, 3, 9, 41}, {4, 3, 41, 7}},
        Shapes{{3, 2, 1, 300}, {2, 300, 450}}, Shapes{{4, 3, 50, 40}, {40, 70}},
        Shapes{{40, 70}, {6, 5, 70, 30}}})
    ExpectExactInEveryType(x);
}

TEST(MatmulExactTest, EdgesOfTilesAndVectors) {
  for (const Shapes& x : {Shapes{{61, 259}, {259, 50}}, Shapes{{7, 5}, {5, 9}},
                          Shapes{{13, 20}, {20, 33}}, Shapes{{12, 256}, {256, 32}}})
    ExpectExactInEveryType(x);
}

// GPUs cut such sums into splits, and c into tiles of 64 to 256.
TEST(MatmulExactTest, LongSums) {
  for (const Shapes& x : {Shapes{{1, 20011}, {20011, 3}}, Shapes{{40, 4100}, {4100, 50}},
                          Shapes{{3, 9000}, {9000, 1}}, Shapes{{130, 1030}, {1030, 66}}})
    ExpectExactInEveryType(x);
}

TEST(MatmulExactTest, TilesWithAnElementMoreOrLess) {
  for (const Shapes& x : {Shapes{{127, 63}, {63, 129}}, Shapes{{128, 64}, {64, 128}},
                          Shapes{{129, 65}, {65, 257}}, Shapes{{257, 40}, {40, 264}}})
    ExpectExactInEveryType(x);
}

// Small integers have less than tf32's 10 fraction bits.
TEST(MatmulExactTest, Tf32) {
  for (const Shapes& x :
       {Shapes{{61, 259}, {259, 50}}, Shapes{{129, 65}, {65, 257}}, Shapes{{256, 64}, {64, 128}},
        Shapes{{40, 4100}, {4100, 50}}, Shapes{{3, 2, 70, 36}, {2, 36, 72}}})
    ExpectExactInEveryForm(x, DataType::kFloat32, "tf32");
}

TEST(MatmulExactTest, Tf32PermissionKeepsFullPrecisionOnTheCpu) {
  const Problem problem =
      *Make({{1, 1}, {1, 1}}, DataType::kFloat32, {{"precision", std::string("tf32")}});
  const float fine = 1 + 0x1p-23f;  // tf32 has 10 fraction bits
  std::vector<Memory> inputs;
  inputs.push_back(Generate(problem.inputs[0], [&] { return fine; }));
  inputs.push_back(Generate(problem.inputs[1], [] { return 1.0f; }));
  for (const TestedRow& row : RowsFor(problem)) {
    if (row.row->device_kind != DeviceKind::kCpu) continue;
    EXPECT_EQ(RunValues(row, problem, inputs)[0], fine) << row.name;
  }
}

// The truth, on the CPU.
TestedRow Reference() {
  const auto kernel = testing::CpuRegistry().Find(MatmulOp().name);
  return {&testing::ReferenceOf(**kernel), testing::VectorTargets().front(), "reference"};
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
      const Problem problem = *Make({x.a, b_dims}, GetParam(), {{"transpose_b", transpose_b}});
      std::vector<Memory> inputs;
      for (const TensorSpec& spec : problem.inputs) inputs.push_back(Generate(spec, next));
      const std::vector<float> expected = RunValues(Reference(), problem, inputs);
      for (const TestedRow& row : RowsFor(problem)) {
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
  const Problem problem = *Make({{48, 48}, {48, 48}}, GetParam(), {});
  std::vector<Memory> inputs;
  inputs.push_back(Generate(problem.inputs[0], [&] { return SmallestSubnormal(); }));
  inputs.push_back(Generate(problem.inputs[1], [] { return -kInfinity; }));
  for (const TestedRow& row : RowsFor(problem))
    for (const float value : RunValues(row, problem, inputs))
      ASSERT_EQ(Class(value), "-infinity") << row.name;
}

// One special value at `at` of input `which`, rows of 70 of a and of 130 of b; the other elements
// are 1 and 2. It reaches the row or the column of c that it is a term of, and nothing else.
class OneSpecialValue {
 public:
  OneSpecialValue(DataType type, bool transposed)
      : transposed_(transposed),
        problem_(*Make({Form({kM, kK}), Form({kK, kN})}, type,
                       {{"transpose_a", transposed}, {"transpose_b", transposed}})) {
    std::mt19937_64 random = Random();
    for (const TensorSpec& spec : problem_.inputs)
      inputs_.push_back(Generate(spec, [&] { return random() % 2 == 0 ? 1.0f : 2.0f; }));
    finite_ = ByDefinition(problem_, inputs_);
  }

  struct Place {
    int input;
    int64_t row;
    int64_t column;
  };
  void Check(const TestedRow& row, const Place& place, float special) {
    void* const data = inputs_[place.input].data();
    const DataType type = problem_.inputs[0].data_type;
    const int64_t at = Index(place);
    const float before = testing::ValueAt(data, type, at);
    testing::SetValue(data, type, at, special);
    const std::vector<float> c = RunValues(row, problem_, inputs_);
    testing::SetValue(data, type, at, before);
    ASSERT_EQ(c.size(), finite_.size());
    for (int64_t i = 0; i < kM * kN; ++i) {
      const bool reached = place.input == 0 ? i / kN == place.row : i % kN == place.column;
      const float expected = reached ? special : finite_[i];
      ASSERT_TRUE(c[i] == expected || (std::isnan(c[i]) && std::isnan(expected)))
          << row.name << ": " << special << " at " << place.row << ", " << place.column
          << " of input " << place.input << " makes " << c[i] << " of " << expected << " at "
          << i / kN << ", " << i % kN;
    }
  }

  const Problem& problem() const { return problem_; }

  static constexpr int64_t kM = 130;
  static constexpr int64_t kK = 70;
  static constexpr int64_t kN = 133;

 private:
  Dims Form(Dims dims) const {
    if (transposed_) std::swap(dims[0], dims[1]);
    return dims;
  }
  int64_t Index(const Place& place) const {
    const Dims& dims = problem_.inputs[place.input].dims;
    return transposed_ ? place.column * dims[1] + place.row : place.row * dims[1] + place.column;
  }

  const bool transposed_;
  const Problem problem_;
  std::vector<Memory> inputs_;
  std::vector<float> finite_;
};

TEST_P(MatmulSpecialTest, OneSpecialValueReachesItsRowOrColumnAndNoOther) {
  using One = OneSpecialValue;
  // First and last, and both sides of the edges of tiles and steps.
  const One::Place places[] = {{0, 0, 0},   {0, 63, 15},  {0, 64, 16},  {0, 129, 69},
                               {1, 0, 132}, {1, 31, 127}, {1, 32, 128}, {1, 69, 0}};
  for (const bool transposed : {false, true}) {
    One one(GetParam(), transposed);
    for (const TestedRow& row : RowsFor(one.problem()))
      for (const One::Place& place : places)
        for (const float special : {std::nanf(""), -kInfinity}) {
          one.Check(row, place, special);
          if (HasFatalFailure()) return;
        }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulSpecialTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& type) { return std::string(DataTypeName(type.param)); });

}  // namespace
}  // namespace warpcall::matmul
