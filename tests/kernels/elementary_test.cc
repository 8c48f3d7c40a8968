// Expressions as chains of elementary operations: the meaning of each step, and that all steps in
// order give the whole.
#include "kernels/expression/elementary.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check/compare.h"
#include "kernels/expression/cuda_source.h"
#include "kernels/expression/parser.h"
#include "kernels/fused/fused.h"
#include "tests/kernels/host_kernels.h"
#include "tests/kernels/random_expression.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"

namespace warpcall::testing {
namespace {

using expression::ChainStep;
using expression::Graph;
using expression::Layout;

constexpr DataType kType = DataType::kFloat32;

struct Formula {
  std::string text;
  std::vector<Dims> shapes;
  Fill fill = Fill::kNormal;

  Problem ToProblem() const {
    std::vector<TensorSpec> specs;
    for (const Dims& dims : shapes) specs.push_back({kType, dims});
    return *MakeProblem(FusedOp(), specs, {{"expression", text}, {"seed", int64_t{5}}});
  }
};

// A chain whose steps are compiled for the host.
class HostChain {
 public:
  HostChain(const Problem& problem, HostKernels* host) : host_(host) {
    const fused::Program program = fused::ProgramOf(problem);
    graph_ = expression::ElementaryGraph(program.graph);
    steps_ = expression::ChainOf(graph_);
    dims_ = expression::NodeDims(graph_, problem.inputs);
    for (const ChainStep& step : steps_) {
      std::vector<TensorSpec> specs;
      for (const int operand : step.operands) specs.push_back(SpecOf(operand));
      const Layout layout = LayoutOf(step.graph, specs);
      const bool reduces = IsReduction(graph_.nodes[static_cast<size_t>(step.node)].op);
      numbers_.push_back(host->Add(expression::CudaKernelFor({.graph = step.graph,
                                                              .layout = layout,
                                                              .data_type = kType,
                                                              .seed = program.seed,
                                                              .narrow_output = reduces}),
                                   specs.size()));
    }
  }

  size_t steps() const { return steps_.size(); }
  const Dims& result_dims() const { return dims_.back(); }

  // The last node's tensor.
  Memory Run(absl::Span<const Memory> inputs) const {
    std::vector<Memory> values;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      values.emplace_back(SpecOf(static_cast<int>(i)).bytes());
    for (size_t i = 0; i < steps_.size(); ++i) {
      std::vector<const void*> operands;
      for (const int operand : steps_[i].operands) {
        const expression::Node& node = graph_.nodes[static_cast<size_t>(operand)];
        const bool is_input = node.op == expression::Operator::kInput;
        operands.push_back(is_input ? inputs[static_cast<size_t>(node.index)].data()
                                    : values[static_cast<size_t>(operand)].data());
      }
      Memory& result = values[static_cast<size_t>(steps_[i].node)];
      result.Poison(0x42);
      host_->Run(numbers_[i], operands.data(), result.data());
      EXPECT_TRUE(result.CheckBands("a step's result").ok());
    }
    return std::move(values.back());
  }

 private:
  TensorSpec SpecOf(int node) const { return {kType, dims_[static_cast<size_t>(node)]}; }

  HostKernels* const host_;
  Graph graph_;
  std::vector<ChainStep> steps_;
  std::vector<Dims> dims_;
  std::vector<int> numbers_;
};

std::vector<Formula> Formulas() {
  std::vector<Formula> samples;
  for (const char* const name : {"gelu", "gelu_erf", "silu", "sigmoid"})
    for (const Fill fill : {Fill::kNormal, Fill::kSpecial, Fill::kWide, Fill::kBroad})
      samples.push_back({absl::StrCat(name, "(x0)"), {{3, 331}}, fill});
  samples.push_back({"gelu(x0 + x1)", {{7, 65}, {65}}});
  samples.push_back({"softmax(x0 * x1)", {{7, 65}, {7, 1}}});
  samples.push_back(
      {"(x0 - mean(x0)) * rsqrt(var(x0) + 1e-5) * x1 + x2", {{3, 130}, {130}, {130}}});
  samples.push_back({"x0 * sum(x1) + where(1 < 2, x1, 3) * sum(2)", {{3, 5, 1}, {5, 7}}});
  samples.push_back({"dropout(x0 + x1, 0.5) / pow(x1, 1.5)", {{4, 33}, {4, 33}}});
  for (int i = 0; i < 4; ++i) {
    const RandomExpression random(RunSeed() + 9000 + static_cast<uint64_t>(i),
                                  {.depth = 3, .inputs = 2, .dropout = true});
    std::vector<Dims> shapes = {{3, 4, 21}, {3, 4, 21}};
    shapes.resize(static_cast<size_t>(random.inputs()));
    samples.push_back({random.text(), shapes});
  }
  return samples;
}

TEST(ElementaryTest, StepsOneAfterTheOtherAreTheExpression) {
  const std::vector<Formula> samples = Formulas();
  std::vector<Problem> problems;
  for (const Formula& sample : samples) problems.push_back(sample.ToProblem());
  HostKernels host;
  std::vector<HostChain> chains;
  for (const Problem& problem : problems) chains.emplace_back(problem, &host);
  if (!host.Compile()) GTEST_SKIP() << "there is no c++, or a tool runs";
  for (size_t i = 0; i < samples.size(); ++i) {
    SCOPED_TRACE(samples[i].text);
    ASSERT_EQ(chains[i].result_dims(), problems[i].outputs[0].dims);
    std::vector<Memory> inputs;
    for (const TensorSpec& spec : problems[i].inputs)
      inputs.push_back(FilledInput(spec, samples[i].fill, absl::StrCat(i, " ", inputs.size())));
    const Memory result = chains[i].Run(inputs);
    const Disagreement found = Compare(TruthFor(FusedOp(), problems[i], inputs), result.data());
    ASSERT_EQ(found.wrong, 0) << found.text;
  }
}

size_t StepsOf(const std::string& text) {
  return expression::ChainOf(expression::ElementaryGraph(*expression::Parse(text))).size();
}

TEST(ElementaryTest, AStepIsAnElementaryOperation) {
  EXPECT_EQ(StepsOf("x0"), 0u);
  EXPECT_EQ(StepsOf("x0 + x1 * 2"), 2u);
  EXPECT_EQ(StepsOf("softmax(x0)"), 5u);
  EXPECT_EQ(StepsOf("sigmoid(x0)"), 4u);  // minus, exp, sum, quotient
  // The steps of kernels/gelu/gelu_cuda_chain.cu, and the bound on cubed values.
  EXPECT_EQ(StepsOf("gelu(x0)"), 10u);
  EXPECT_EQ(StepsOf("where(1 < 2, x0, 3)"), 1u);
}

// Each reduction uses the one within it several times: walking it again each time takes years.
TEST(ElementaryTest, NestedReductionsOfNumbersAreWalkedOnce) {
  std::string nested = "1";
  for (int depth = 0; depth < 60; ++depth) nested = absl::StrCat("var(", nested, ")");
  const Graph graph = expression::ElementaryGraph(*expression::Parse("x0 + " + nested));
  const std::vector<ChainStep> steps = expression::ChainOf(graph);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_LE(steps[0].graph.nodes.size(), graph.nodes.size());
}

}  // namespace
}  // namespace warpcall::testing
