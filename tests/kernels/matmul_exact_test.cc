// matmul on numbers whose products and sums are exact, and on NaN and infinity: every row of every
// device must give the same answer to the last bit, whatever the order of its sums.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/matmul/matmul.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::matmul {
namespace {

namespace testing = warpcall::testing;
using testing::kInfinity;
using testing::Memory;
using testing::TestedRow;

struct Shapes {
  Dims a;
  Dims b;
};

struct Form {
  bool transpose_a = false;
  bool transpose_b = false;
  const char* precision = "ieee";
};

// REQUIRES: the shapes are as they are without transposition.
Problem Make(Shapes shapes, DataType type, const Form& form = {}) {
  if (form.transpose_a) std::swap(shapes.a.end()[-1], shapes.a.end()[-2]);
  if (form.transpose_b) std::swap(shapes.b.end()[-1], shapes.b.end()[-2]);
  return *MakeProblem(MatmulOp(), {{type, shapes.a}, {type, shapes.b}},
                      {{"transpose_a", form.transpose_a},
                       {"transpose_b", form.transpose_b},
                       {"precision", std::string(form.precision)}});
}

// Products and sums of such integers are exact in float32, in any order.
float SmallInteger(std::mt19937_64& random) {
  return static_cast<float>(static_cast<int>(random() % 5) - 2);
}

std::mt19937_64 Random() { return std::mt19937_64(testing::RunSeed()); }

std::vector<Memory> Generate(const Problem& problem, absl::FunctionRef<float()> next) {
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem.inputs) {
    inputs.emplace_back(spec.bytes());
    for (int64_t i = 0; i < spec.elements(); ++i)
      testing::SetValue(inputs.back().data(), spec.data_type, i, next());
  }
  return inputs;
}

class MatmulExactTest : public ::testing::TestWithParam<DataType> {
 protected:
  // Runs with each input as it is and transposed. A single lost, doubled or misplaced term shows
  // among any number.
  void ExpectExact(const Shapes& shapes, const char* precision = "ieee") {
    std::mt19937_64 random = Random();
    for (const int form : {0, 1, 2, 3}) {
      const Problem problem =
          Make(shapes, GetParam(), {(form & 1) != 0, (form & 2) != 0, precision});
      const auto inputs = Generate(problem, [&] { return SmallInteger(random); });
      ExpectExact(problem, inputs);
    }
  }
  static void ExpectExact(const Problem& problem, const std::vector<Memory>& inputs) {
    if (testing::IsSmallEnough(problem))
      ExpectTruth(MatmulOp(), problem, inputs, ExactTruthFor(MatmulOp(), problem, inputs));
  }

  float SmallestSubnormal() const {
    if (GetParam() == DataType::kFloat16) return 0x1p-24f;
    return GetParam() == DataType::kBFloat16 ? 0x1p-133f : 0x1p-149f;
  }
};

TEST_P(MatmulExactTest, SumsOfIntegers) {
  const Shapes all[] = {
      // Above two million terms, which threads share.
      {{301, 130}, {130, 71}},
      {{24, 257}, {257, 1100}},
      {{520, 130}, {130, 40}},
      {{20, 3000}, {3000, 45}},
      // Few rows and few columns.
      {{1, 1500}, {1500, 91}},
      {{2, 1100}, {1100, 1030}},
      {{3, 521}, {521, 70}},
      {{1801, 1300}, {1300, 1}},
      {{4, 515}, {515, 60}},
      {{1, 5000}, {5000, 1}},
      // Many matrices.
      {{60, 41, 40}, {60, 40, 31}},
      {{5, 1, 3, 9, 41}, {4, 3, 41, 7}},
      {{3, 2, 1, 300}, {2, 300, 450}},
      {{4, 3, 50, 40}, {40, 70}},
      {{40, 70}, {6, 5, 70, 30}},
      // Edges of tiles and vectors; tiles with an element more or less.
      {{61, 259}, {259, 50}},
      {{7, 5}, {5, 9}},
      {{13, 20}, {20, 33}},
      {{12, 256}, {256, 32}},
      {{127, 63}, {63, 129}},
      {{128, 64}, {64, 128}},
      {{129, 65}, {65, 257}},
      {{257, 40}, {40, 264}},
      // Long sums, which GPUs cut into splits, and c into tiles of 64 to 256.
      {{1, 20011}, {20011, 3}},
      {{40, 4100}, {4100, 50}},
      {{3, 9000}, {9000, 1}},
      {{130, 1030}, {1030, 66}},
  };
  for (const Shapes& shapes : all) ExpectExact(shapes);
}

// Small integers have less than tf32's 10 fraction bits.
TEST_P(MatmulExactTest, Tf32) {
  if (GetParam() != DataType::kFloat32) GTEST_SKIP() << "tf32 takes float32";
  for (const Shapes& shapes :
       {Shapes{{61, 259}, {259, 50}}, Shapes{{129, 65}, {65, 257}}, Shapes{{256, 64}, {64, 128}},
        Shapes{{40, 4100}, {4100, 50}}, Shapes{{3, 2, 70, 36}, {2, 36, 72}}})
    ExpectExact(shapes, "tf32");
}

TEST(MatmulTf32Test, ThePermissionKeepsFullPrecisionOnTheCpu) {
  const Problem problem = Make({{1, 1}, {1, 1}}, DataType::kFloat32, {.precision = "tf32"});
  const float fine = 1 + 0x1p-23f;  // tf32 has 10 fraction bits
  for (const TestedRow& row : testing::TestedRows(MatmulOp())) {
    if (row.row->device_kind != DeviceKind::kCpu || !Supports(row, problem).ok()) continue;
    float next = 2 - fine;
    const auto inputs = Generate(problem, [&] { return next = next == fine ? 1 : fine; });
    const auto outputs = RunTested(row, problem, inputs, /*poison=*/0xFF);
    ASSERT_TRUE(outputs.ok()) << row.name << ": " << outputs.status();
    EXPECT_EQ(testing::ValueAt((*outputs)[0].data(), DataType::kFloat32, 0), fine) << row.name;
  }
}

TEST_P(MatmulExactTest, SumsOfIntegersAndSpecialValues) {
  std::mt19937_64 random = Random();
  const float specials[] = {std::nanf(""), kInfinity, -kInfinity,         0.0f,
                            -0.0f,         0.0f,      SmallestSubnormal()};
  const auto next = [&] {
    return random() % 16 == 0 ? specials[random() % std::size(specials)] : SmallInteger(random);
  };
  for (const Shapes& shapes :
       {Shapes{{1, 35}, {35, 70}}, Shapes{{3, 9}, {9, 67}}, Shapes{{45, 17}, {17, 1}},
        Shapes{{37, 5}, {5, 49}}, Shapes{{37, 33}, {33, 49}}, Shapes{{4, 9, 7}, {7, 35}}}) {
    for (const bool transpose_b : {false, true}) {
      const Problem problem = Make(shapes, GetParam(), {.transpose_b = transpose_b});
      const auto inputs = Generate(problem, next);
      ExpectTruth(MatmulOp(), problem, inputs, TruthFor(MatmulOp(), problem, inputs));
    }
  }
}

TEST_P(MatmulExactTest, SubnormalTimesInfinityIsInfinite) {
  const Problem problem = Make({{48, 48}, {48, 48}}, GetParam());
  int64_t left = problem.inputs[0].elements();
  const auto inputs =
      Generate(problem, [&] { return left-- > 0 ? SmallestSubnormal() : -kInfinity; });
  ExpectExact(problem, inputs);
}

// Among 1 and 2 one special value reaches the row or the column of c that it is a term of, and
// nothing else.
TEST_P(MatmulExactTest, OneSpecialValueReachesItsRowOrColumnAndNoOther) {
  struct Place {
    size_t input;
    int64_t row;
    int64_t column;
  };
  // First and last, and both sides of the edges of tiles and steps.
  constexpr Place kPlaces[] = {{0, 0, 0},   {0, 63, 15},  {0, 64, 16},  {0, 129, 69},
                               {1, 0, 132}, {1, 31, 127}, {1, 32, 128}, {1, 69, 0}};
  // Wherever it stands, rows read and write the same memory, which is all that a tool looks at.
  const size_t places = testing::TestElementsMax() > 0 ? 1 : std::size(kPlaces);
  std::vector<Form> forms = {{false, false}, {true, true}};
  if (GetParam() == DataType::kFloat32) {
    forms.push_back({false, false, "tf32"});
    forms.push_back({true, true, "tf32"});
  }
  for (const Form& form : forms) {
    const bool transposed = form.transpose_a;
    const Problem problem = Make({{130, 70}, {70, 133}}, GetParam(), form);
    std::mt19937_64 random = Random();
    for (const Place& place : absl::MakeSpan(kPlaces, places))
      for (const float special : {std::nanf(""), -kInfinity}) {
        const auto inputs = Generate(problem, [&] { return random() % 2 == 0 ? 1.0f : 2.0f; });
        const int64_t width = problem.inputs[place.input].dims[1];
        testing::SetValue(
            inputs[place.input].data(), GetParam(),
            transposed ? place.column * width + place.row : place.row * width + place.column,
            special);
        const Truth truth = ExactTruthFor(MatmulOp(), problem, inputs);
        for (int64_t i = 0; i < truth.spec.elements(); ++i) {
          const bool reached = place.input == 0 ? i / 133 == place.row : i % 133 == place.column;
          ASSERT_EQ(std::isfinite(truth.values[static_cast<size_t>(i)]), !reached) << i;
        }
        ExpectTruth(MatmulOp(), problem, inputs, truth);
        if (HasFatalFailure()) return;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MatmulExactTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& type) { return std::string(DataTypeName(type.param)); });

}  // namespace
}  // namespace warpcall::matmul
