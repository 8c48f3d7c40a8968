// Op::independence: a row's output part by part equals its output at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "kernels/check/truth.h"
#include "kernels/fused/fused.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/check.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall {
namespace {

using testing::Memory;

struct PartsCase {
  const Op* op;
  Dims dims;
  std::vector<NamedAttribute> attributes;
  int64_t parts;
  std::string three;  // the first input of three parts, as float32; empty where there are fewer
  std::vector<Dims> shared = {};  // the other inputs; every part has all of them
};

std::vector<PartsCase> Cases() {
  const NamedAttribute none{"approximate", std::string("none")};
  const auto axis = [](int64_t i) { return NamedAttribute{"axis", i}; };
  const auto text = [](const char* expression) {
    return NamedAttribute{"expression", std::string(expression)};
  };
  return {
      {&IdentityOp(), {7, 11}, {}, 77, "float32[3]"},
      {&GeluOp(), {5, 3, 7}, {}, 105, "float32[3]"},
      {&GeluOp(), {101}, {none}, 101, "float32[3]"},
      {&SoftmaxOp(), {13}, {}, 1, ""},
      {&SoftmaxOp(), {4, 5, 33}, {}, 20, "float32[3,33]"},
      {&SoftmaxOp(), {4, 5, 33}, {axis(1)}, 4, "float32[3,5,33]"},
      {&SoftmaxOp(), {3, 5, 2, 9}, {axis(-2)}, 15, "float32[3,2,9]"},
      {&SoftmaxOp(), {6, 17, 1}, {axis(1)}, 6, "float32[3,17]"},
      {&SoftmaxOp(), {6, 17}, {axis(0)}, 1, ""},
      {&SoftmaxOp(), {8, 1025}, {}, 8, "float32[3,1025]"},
      {&IdentityOp(), {0, 3}, {}, 0, ""},
      {&GeluOp(), {2, 0}, {}, 0, ""},
      {&SoftmaxOp(), {0, 3}, {}, 0, ""},
      {&SoftmaxOp(), {2, 3, 0}, {axis(1)}, 0, ""},
      {&LayernormOp(), {4, 5, 33}, {}, 20, "float32[3,33]", {{33}, {33}}},
      {&LayernormOp(), {9, 1025}, {}, 9, "float32[3,1025]", {{1025}, {1025}}},
      {&LayernormOp(), {7}, {}, 1, "", {{7}, {7}}},
      {&RmsnormOp(), {3, 2, 1, 64}, {}, 6, "float32[3,64]", {{64}}},
      {&RmsnormOp(), {5, 0}, {}, 0, "", {{0}}},
      {&FusedOp(), {4, 5, 33}, {text("softmax(x0 + x1)")}, 20, "float32[3,33]", {{33}}},
      {&FusedOp(), {70, 9}, {text("gelu(x0) / max(x0)")}, 70, "float32[3,9]"},
      {&FusedOp(), {70, 9}, {text("dropout(x0, 0.5)")}, 1, ""},
      {&FusedOp(), {77}, {text("x0 * x1")}, 1, "", {{1}}},
  };
}

Problem ProblemOf(const PartsCase& test_case, DataType type) {
  std::vector<TensorSpec> inputs = {{type, test_case.dims}};
  for (const Dims& dims : test_case.shared) inputs.push_back({type, dims});
  absl::StatusOr<Problem> problem = MakeProblem(*test_case.op, inputs, test_case.attributes);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

Memory SliceOf(const Memory& whole, size_t begin, size_t bytes) {
  Memory piece(bytes);
  std::memcpy(piece.data(), static_cast<const char*>(whole.data()) + begin, bytes);
  return piece;
}

struct Whole {
  const Op& op;
  const Implementation& row;
  const Problem& problem;
  const std::vector<Memory>& inputs;
};

// The output of the row, from rounds of up to `parts_per_round` parts with operands of their own.
Memory RunInRounds(const Whole& whole, int64_t parts_per_round) {
  const int64_t parts = PartsOf(whole.op, whole.problem);
  Memory output(whole.problem.outputs[0].bytes());
  for (int64_t part = 0; part < parts; part += parts_per_round) {
    const int64_t count = std::min(parts_per_round, parts - part);
    const Problem round = TakeParts(whole.op, whole.problem, count);
    // Bytes that the first so many parts have of a tensor of `bytes`.
    const auto of_parts = [parts](size_t bytes, int64_t first) {
      return bytes / static_cast<size_t>(parts) * static_cast<size_t>(first);
    };
    std::vector<Memory> inputs;
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      const size_t bytes = whole.inputs[i].bytes();
      const bool shared = RoleOf(whole.op, whole.problem, i) == OperandRole::kShared;
      inputs.push_back(
          shared ? SliceOf(whole.inputs[i], 0, bytes)
                 : SliceOf(whole.inputs[i], of_parts(bytes, part), of_parts(bytes, count)));
      EXPECT_EQ(round.inputs[i].bytes(), inputs[i].bytes()) << i;
    }
    EXPECT_EQ(round.outputs[0].bytes(), of_parts(output.bytes(), count));
    const absl::StatusOr<std::vector<Memory>> outputs =
        testing::RunRow(whole.row, round, inputs, 0xFF);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) break;
    std::memcpy(static_cast<char*>(output.data()) + of_parts(output.bytes(), part),
                (*outputs)[0].data(), (*outputs)[0].bytes());
  }
  return output;
}

void ExpectSameInRounds(const PartsCase& test_case, const Implementation& row, DataType type) {
  const Problem problem = ProblemOf(test_case, type);
  if (!row.supports(problem, testing::TestDeviceProperties()).ok()) return;
  std::vector<Memory> inputs;
  for (const TensorSpec& spec : problem.inputs)
    inputs.push_back(testing::FilledInput(spec, Fill::kNormal, row.name));
  const absl::StatusOr<std::vector<Memory>> expected = testing::RunRow(row, problem, inputs, 0x5A);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (int64_t parts_per_round : {int64_t{1}, int64_t{3}, test_case.parts}) {
    const Memory output = RunInRounds({*test_case.op, row, problem, inputs}, parts_per_round);
    EXPECT_EQ(std::memcmp(output.data(), (*expected)[0].data(), output.bytes()), 0)
        << row.name << " " << ToString(problem.inputs[0]) << ", " << parts_per_round
        << " parts a round";
  }
}

TEST(PartsTest, CountWhatDoesNotDependOnEachOther) {
  for (const PartsCase& test_case : Cases()) {
    const Problem problem = ProblemOf(test_case, DataType::kFloat32);
    EXPECT_EQ(PartsOf(*test_case.op, problem), test_case.parts)
        << test_case.op->name << " " << ToString(problem.inputs[0]);
  }
}

TEST(PartsTest, TakenPartsAreAProblemOfTheOp) {
  for (const PartsCase& test_case : Cases()) {
    if (test_case.three.empty()) continue;
    const Problem problem = ProblemOf(test_case, DataType::kFloat32);
    const Problem part = TakeParts(*test_case.op, problem, 3);
    EXPECT_EQ(ToString(part.inputs[0]), test_case.three);
    for (size_t i = 1; i < part.inputs.size(); ++i) EXPECT_EQ(part.inputs[i], problem.inputs[i]);
    std::vector<NamedAttribute> attributes;
    for (size_t i = 0; i < part.attributes.size(); ++i) {
      attributes.push_back({test_case.op->attributes[i].name, part.attributes[i]});
    }
    const absl::StatusOr<Problem> made = MakeProblem(*test_case.op, part.inputs, attributes);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(ToString(part.outputs[0]), ToString(made->outputs[0]));
    EXPECT_EQ(part.outputs.size(), made->outputs.size());
  }
}

// A problem, its number of parts, and the dimensions of three parts' operands, inputs first; empty
// if the problem is one piece.
struct DivisionCase {
  std::vector<Dims> inputs;
  std::vector<NamedAttribute> attributes;
  int64_t parts;
  std::vector<Dims> three;
};

void ExpectDivisions(const Op& op, const std::vector<DivisionCase>& cases) {
  for (const DivisionCase& test_case : cases) {
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : test_case.inputs) inputs.push_back({DataType::kFloat32, dims});
    const absl::StatusOr<Problem> problem = MakeProblem(op, inputs, test_case.attributes);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const std::string label = ToString(inputs[0]) + " " + ToString(inputs.back());
    EXPECT_EQ(PartsOf(op, *problem), test_case.parts) << label;
    if (test_case.three.empty()) {
      EXPECT_EQ(TakeParts(op, *problem, 1), *problem) << label;
      continue;
    }
    const Problem part = TakeParts(op, *problem, 3);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(part.inputs[i].dims, test_case.three[i]) << label << ", input " << i;
      const bool shared = RoleOf(op, *problem, i) == OperandRole::kShared;
      EXPECT_EQ(part.inputs[i].bytes() * (shared ? 1 : test_case.parts),
                problem->inputs[i].bytes() * (shared ? 1 : 3))
          << label;
    }
    EXPECT_EQ(part.outputs[0].dims, test_case.three.back()) << label;
    EXPECT_EQ(RoleOf(op, *problem, inputs.size()), OperandRole::kSplit);
  }
}

TEST(PartsTest, RowsThatAreBroadcast) {
  const std::vector<NamedAttribute> sum = {{"expression", std::string("x0 + x1")}};
  ExpectDivisions(
      FusedOp(),
      {{{{4, 5, 33}, {4, 5, 1}}, sum, 20, {{3, 33}, {3, 1}, {3, 33}}},
       {{{4, 5, 1}, {4, 5, 33}}, sum, 20, {{3, 1}, {3, 33}, {3, 33}}},
       {{{33}, {4, 5, 33}}, sum, 20, {{33}, {3, 33}, {3, 33}}},
       {{{1, 1, 33}, {4, 5, 1}}, sum, 20, {{33}, {3, 1}, {3, 33}}},
       {{{4, 5, 33}, {1}}, sum, 20, {{3, 33}, {1}, {3, 33}}},
       {{{4, 5, 33}, {5, 33}}, sum, 1, {}},     // five rows for twenty
       {{{4, 5, 33}, {4, 1, 33}}, sum, 1, {}},  // four
       {{{4, 1, 33}, {1, 5, 33}}, sum, 1, {}},  // both inputs broadcast
       {{{1, 5, 33}, {5, 33}}, sum, 1, {}},     // the second has fewer dimensions than the output
       {{{1, 33}, {33}}, sum, 1, {}}});
}

TEST(PartsTest, ProductsFallIntoRowsOrMatrices) {
  const auto transposed = [](const char* name) {
    return std::vector<NamedAttribute>{{name, true}};
  };
  ExpectDivisions(
      MatmulOp(),
      {{{{6, 7}, {7, 9}}, {}, 6, {{3, 7}, {7, 9}, {3, 9}}},
       {{{6, 7}, {9, 7}}, transposed("transpose_b"), 6, {{3, 7}, {9, 7}, {3, 9}}},
       {{{2, 6, 7}, {7, 9}}, {}, 12, {{3, 7}, {7, 9}, {3, 9}}},
       {{{7, 6}, {7, 9}}, transposed("transpose_a"), 1, {}},
       {{{2, 7, 6}, {7, 9}}, transposed("transpose_a"), 1, {}},
       {{{2, 5, 6, 7}, {2, 5, 7, 9}}, {}, 10, {{3, 6, 7}, {3, 7, 9}, {3, 6, 9}}},
       {{{5, 7, 6}, {5, 7, 9}}, transposed("transpose_a"), 5, {{3, 7, 6}, {3, 7, 9}, {3, 6, 9}}},
       {{{5, 6, 7}, {1, 7, 9}}, {}, 1, {}},
       {{{6, 7}, {5, 7, 9}}, {}, 1, {}}});
}

TEST(PartsTest, EveryRowComputesPartsAsItComputesTheWhole) {
  for (const PartsCase& test_case : Cases()) {
    if (test_case.parts == 0) continue;
    const auto kernel = testing::CpuKernels().Find(test_case.op->name);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    for (int id : (*kernel)->rows) {
      const Implementation& row = testing::CpuKernels().rows()[id].implementation;
      for (DataType type : row.data_types) ExpectSameInRounds(test_case, row, type);
    }
  }
}

// Sums may be added up in another order where there are fewer rows.
TEST(PartsTest, EveryRowComputesPartsOfProductsWithinTheirTolerance) {
  const OpCases cases = MatmulOp().cases();
  const std::vector<NamedAttribute> transposed = {{"transpose_b", true}};
  struct Product {
    Dims a;
    Dims b;
    std::vector<NamedAttribute> attributes;
  };
  for (const Product& product : {Product{{37, 65}, {65, 33}, {}},
                                 {{6, 130}, {9, 130}, transposed},
                                 {{2, 5, 17}, {17, 9}, {}},
                                 {{2, 3, 6, 40}, {2, 3, 40, 9}, {}}})
    for (const int id : (*testing::CpuKernels().Find("matmul"))->rows) {
      const Implementation& row = testing::CpuKernels().rows()[id].implementation;
      for (const DataType type : row.data_types) {
        const Problem problem =
            *MakeProblem(MatmulOp(), {{type, product.a}, {type, product.b}}, product.attributes);
        if (!row.supports(problem, testing::TestDeviceProperties()).ok()) continue;
        SCOPED_TRACE(absl::StrCat(row.name, " ", ToString(problem.inputs[0])));
        std::vector<Memory> inputs;
        for (const TensorSpec& spec : problem.inputs)
          inputs.push_back(testing::FilledInput(spec, Fill::kNormal, ToString(spec)));
        const Truth truth =
            TruthOf({MatmulOp(), cases, problem, testing::OperandsOf(inputs)}, testing::TestPool());
        for (const int64_t parts_per_round : {1, 4}) {
          const Memory output = RunInRounds({MatmulOp(), row, problem, inputs}, parts_per_round);
          const Disagreement found =
              Compare(truth, output.data(), AllowanceFor(cases, row.name, type));
          EXPECT_EQ(found.wrong, 0) << parts_per_round << " parts a round:\n" << found.text;
        }
      }
    }
}

TEST(PartsDeathTest, TakesNoMorePartsThanThereAre) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  const Problem problem = *MakeProblem(IdentityOp(), {TensorSpec{DataType::kFloat32, {4}}}, {});
  EXPECT_DEATH(TakeParts(IdentityOp(), problem, 0), "count >= 1");
  EXPECT_DEATH(TakeParts(IdentityOp(), problem, 5), "PartsOf.op, problem.: 5, 4");
}

}  // namespace
}  // namespace warpcall
