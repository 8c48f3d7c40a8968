// Op::independence: what a row computes part by part is what it computes at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"
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
  std::vector<Dims> shared = {};  // the other inputs, of which every part has all
};

std::vector<PartsCase> Cases() {
  const NamedAttribute none{"approximate", std::string("none")};
  const auto axis = [](int64_t i) { return NamedAttribute{"axis", i}; };
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
  };
}

Problem ProblemOf(const PartsCase& test_case, DataType type) {
  std::vector<TensorSpec> inputs = {{type, test_case.dims}};
  for (const Dims& dims : test_case.shared) inputs.push_back({type, dims});
  absl::StatusOr<Problem> problem = MakeProblem(*test_case.op, inputs, test_case.attributes);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

Memory Slice(const Memory& whole, size_t begin, size_t bytes) {
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
  const size_t part_bytes = whole.inputs[0].bytes() / static_cast<size_t>(parts);
  Memory output(whole.problem.outputs[0].bytes());
  for (int64_t part = 0; part < parts; part += parts_per_round) {
    const int64_t count = std::min(parts_per_round, parts - part);
    const Problem round = TakeParts(whole.op, whole.problem, count);
    const size_t begin = static_cast<size_t>(part) * part_bytes;
    std::vector<Memory> inputs;
    inputs.push_back(Slice(whole.inputs[0], begin, static_cast<size_t>(count) * part_bytes));
    for (size_t i = 1; i < whole.inputs.size(); ++i)
      inputs.push_back(Slice(whole.inputs[i], 0, whole.inputs[i].bytes()));
    EXPECT_EQ(round.inputs[0].bytes(), inputs[0].bytes());
    EXPECT_EQ(round.outputs[0].bytes(), inputs[0].bytes());
    const absl::StatusOr<std::vector<Memory>> outputs =
        testing::RunRow(whole.row, round, inputs, 0xFF);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) break;
    std::memcpy(static_cast<char*>(output.data()) + begin, (*outputs)[0].data(),
                (*outputs)[0].bytes());
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

}  // namespace
}  // namespace warpcall
