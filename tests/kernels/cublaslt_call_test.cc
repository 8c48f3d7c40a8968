// Checks the calls for cuBLASLt by doing exactly what they ask on the CPU.
#include "kernels/matmul/cublaslt_call.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/plan.h"

namespace warpcall::matmul {
namespace {

struct Case {
  Dims a;
  Dims b;
  bool transpose_a;
  bool transpose_b;
};

Problem ProblemOf(const Case& test_case, DataType type = DataType::kFloat32,
                  const char* precision = "ieee") {
  absl::StatusOr<Problem> problem =
      MakeProblem(MatmulOp(), {{type, test_case.a}, {type, test_case.b}},
                  {{"transpose_a", test_case.transpose_a},
                   {"transpose_b", test_case.transpose_b},
                   {"precision", std::string(precision)}});
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

// Small whole numbers, so that sums are exact in any order.
std::vector<float> Numbers(const TensorSpec& spec, int seed) {
  std::vector<float> numbers(static_cast<size_t>(spec.elements()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(static_cast<int>((i * 7 + seed) % 11) - 5);
  return numbers;
}

// One operand of a call, at one batch.
struct Operand {
  const std::vector<float>& data;
  int64_t offset;
  const CublasLtMatrix& matrix;

  // Element (i, j) of op(matrix), column-major.
  float At(int64_t i, int64_t j) const {
    const int64_t row = matrix.transpose ? j : i;
    const int64_t column = matrix.transpose ? i : j;
    EXPECT_LT(row, matrix.rows);
    EXPECT_LT(column, matrix.columns);
    return data[static_cast<size_t>(offset + column * matrix.leading_dimension + row)];
  }
};

// The meaning of cublasLtMatmul for one batch: c = op(first) op(second).
void Multiply(const Operand& first, const Operand& second, const CublasLtMatrix& output, float* c) {
  const CublasLtMatrix& matrix = first.matrix;
  const int64_t terms = matrix.transpose ? matrix.rows : matrix.columns;
  for (int64_t j = 0; j < output.columns; ++j) {
    for (int64_t i = 0; i < output.rows; ++i) {
      float sum = 0;
      for (int64_t p = 0; p < terms; ++p) sum += first.At(i, p) * second.At(p, j);
      c[j * output.leading_dimension + i] = sum;
    }
  }
}

std::vector<float> RunCalls(const Problem& problem, const std::vector<float>& a,
                            const std::vector<float>& b) {
  const auto [call, outer] = MakeCublasLtCalls(problem);
  EXPECT_FALSE(call.output.transpose);
  std::vector<float> c(static_cast<size_t>(problem.outputs[0].elements()), -1000);
  for (int64_t i = 0; i < outer.batches(); ++i) {
    const Offsets at = outer.BatchOffsets(i);
    for (int64_t batch = 0; batch < call.batch_count; ++batch) {
      Multiply({b, at.b + batch * call.first.batch_stride, call.first},
               {a, at.a + batch * call.second.batch_stride, call.second}, call.output,
               c.data() + at.c + batch * call.output.batch_stride);
    }
  }
  return c;
}

std::vector<Case> Cases() {
  struct Batches {
    Dims a;
    Dims b;
  };
  const std::vector<Batches> all_batches = {
      {{}, {}},         {{3}, {3}},
      {{3}, {}},        {{}, {3}},
      {{2, 1}, {3}},    {{2, 1}, {5}},
      {{5, 1}, {1, 2}}, {{2, 1, 2}, {1, 3, 1}},
      {{2, 3}, {2, 1}}, {{2, 1, 2, 1, 3, 1}, {1, 2, 2, 2, 1, 1}}};
  struct Size {
    int64_t m;
    int64_t k;
    int64_t n;
  };
  std::vector<Case> cases;
  for (const Size& size :
       {Size{3, 4, 5}, Size{1, 4, 5}, Size{3, 1, 5}, Size{3, 4, 1}, Size{1, 1, 1}, Size{4, 4, 4}}) {
    for (const Batches& batches : all_batches) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          Case test_case{batches.a, batches.b, transpose_a, transpose_b};
          for (const int64_t dim : {transpose_a ? size.k : size.m, transpose_a ? size.m : size.k})
            test_case.a.push_back(dim);
          for (const int64_t dim : {transpose_b ? size.n : size.k, transpose_b ? size.k : size.n})
            test_case.b.push_back(dim);
          cases.push_back(std::move(test_case));
        }
      }
    }
  }
  return cases;
}

TEST(CublasLtCallTest, MultipliesWhatTheProblemSays) {
  cpu::ThreadPool pool(1);
  for (const Case& test_case : Cases()) {
    const Problem problem = ProblemOf(test_case);
    SCOPED_TRACE(absl::StrCat(ToString(problem.inputs[0]), test_case.transpose_a ? "^T" : "", " x ",
                              ToString(problem.inputs[1]), test_case.transpose_b ? "^T" : ""));
    const std::vector<float> a = Numbers(problem.inputs[0], 1);
    const std::vector<float> b = Numbers(problem.inputs[1], 4);
    std::vector<float> expected(static_cast<size_t>(problem.outputs[0].elements()));
    Operands operands;
    operands.inputs = {a.data(), b.data()};
    operands.outputs = {expected.data()};
    const absl::StatusOr<PlanPtr> plan = Float64Row().plan(problem, {});
    ASSERT_TRUE(plan.ok() && (*plan)->Enqueue(operands, {.stream = &pool}).ok());
    EXPECT_EQ(RunCalls(problem, a, b), expected);
  }
}

TEST(CublasLtCallTest, LeadingDimensionsHoldAColumn) {
  for (const Case& test_case : Cases()) {
    const CublasLtCalls calls = MakeCublasLtCalls(ProblemOf(test_case));
    for (const CublasLtMatrix& matrix : {calls.call.first, calls.call.second, calls.call.output})
      EXPECT_GE(matrix.leading_dimension, matrix.rows);
  }
}

TEST(CublasLtCallTest, LongestBatchGoesIntoTheCall) {
  const CublasLtCalls calls =
      MakeCublasLtCalls(ProblemOf({{100, 1, 3, 4}, {1, 2, 4, 5}, false, false}));
  EXPECT_EQ(calls.call.batch_count, 100);
  EXPECT_EQ(calls.call.first.batch_stride, 0);
  EXPECT_EQ(calls.outer.batches(), 2);
}

TEST(CublasLtCallTest, AlignmentIsThatOfEveryBatch) {
  // Matrices of 2 x 12 = 24, 12 x 6 = 72 and 2 x 6 = 12 elements of 2 bytes.
  const CublasLtCalls batch =
      MakeCublasLtCalls(ProblemOf({{3, 2, 12}, {3, 12, 6}, false, false}, DataType::kFloat16));
  EXPECT_EQ(batch.call.second.alignment_bytes, 16);
  EXPECT_EQ(batch.call.first.alignment_bytes, 16);
  EXPECT_EQ(batch.call.output.alignment_bytes, 8);
  const CublasLtCalls single =
      MakeCublasLtCalls(ProblemOf({{3, 5}, {5, 7}, false, false}, DataType::kFloat16));
  EXPECT_EQ(single.call.second.alignment_bytes, 256);
  EXPECT_EQ(single.call.output.alignment_bytes, 256);
}

// As linear asks for sums that are not rounded.
TEST(CublasLtCallTest, OutputsMayBeWiderThanOperands) {
  Problem problem = ProblemOf({{3, 2, 12}, {3, 12, 6}, false, false}, DataType::kFloat16);
  problem.outputs[0].data_type = DataType::kFloat32;
  const CublasLtCall call = MakeCublasLtCalls(problem).call;
  EXPECT_EQ(call.first.data_type, DataType::kFloat16);
  EXPECT_EQ(call.second.data_type, DataType::kFloat16);
  EXPECT_EQ(call.output.data_type, DataType::kFloat32);
  EXPECT_EQ(call.second.alignment_bytes, 16);
  EXPECT_EQ(call.output.alignment_bytes, 16);  // for rows of 12 elements of 4 bytes
}

}  // namespace
}  // namespace warpcall::matmul
