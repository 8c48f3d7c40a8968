// Where a graph's intermediates lie, how its steps are planned, and what it runs.
#include "kernels/graph/step_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "kernels/graph/graph_plan.h"
#include "kernels/identity/identity.h"
#include "kernels/plan_cache.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/seed.h"

namespace warpcall {
namespace {

using testing::CpuKernels;

Step CopyStep(int64_t elements, GraphValue from) {
  return {.op = &IdentityOp(),
          .row = nullptr,
          .problem = *MakeProblem(IdentityOp(), {TensorSpec{DataType::kFloat32, {elements}}}, {}),
          .inputs = {from}};
}

// A chain of copies, each of the step before it.
std::vector<Step> Chain(int steps, int64_t elements = 100) {
  std::vector<Step> chain;
  for (int i = 0; i < steps; ++i)
    chain.push_back(CopyStep(elements, i == 0 ? GraphValue{true, 0} : GraphValue{false, i - 1}));
  return chain;
}

TEST(StepGraphTest, AChainNeedsRoomForTwoResults) {
  for (const int steps : {1, 2, 3, 10}) {
    const StepGraph graph(Chain(steps), {steps - 1}, false);
    EXPECT_EQ(graph.arena_bytes(), 512u * static_cast<size_t>(std::min(steps - 1, 2)));
  }
}

TEST(StepGraphTest, OutputsAreNoIntermediates) {
  const StepGraph graph(Chain(4), {3, 1}, false);
  EXPECT_EQ(graph.OutputOf(3), 0);
  EXPECT_EQ(graph.OutputOf(1), 1);
  EXPECT_EQ(graph.OutputOf(0), -1);
  EXPECT_EQ(graph.OutputOf(2), -1);
  EXPECT_EQ(graph.arena_bytes(), 512u);  // the two others do not meet
}

// Random graphs whose results have random sizes and readers.
class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937* random) : random_(*random) {
    const int count = Below(40) + 1;
    for (int i = 0; i < count; ++i) {
      // The sizes of a step's operands play no part in where results lie.
      Step step = CopyStep(Below(2000), {true, 0});
      step.inputs[0] = i > 0 && Below(5) > 0 ? GraphValue{false, Below(i)} : GraphValue{true, 0};
      steps_.push_back(std::move(step));
      if (Below(6) == 0 || i == count - 1) outputs_.push_back(i);
    }
  }

  int Below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  StepGraph Make() const { return StepGraph(steps_, outputs_, false); }

  // The last step that reads the result of `step`, or the step itself.
  int LastUse(int step) const {
    int last = step;
    for (size_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].inputs[0] == GraphValue{false, step}) last = static_cast<int>(i);
    return last;
  }

 private:
  std::mt19937& random_;
  std::vector<Step> steps_;
  std::vector<int> outputs_;
};

TEST(StepGraphTest, NoTwoResultsThatAreNeededAtOneTimeOverlap) {
  std::mt19937 random(static_cast<uint32_t>(testing::RunSeed()));
  for (int run = 0; run < 500; ++run) {
    RandomGraph drawn(&random);
    const StepGraph graph = drawn.Make();
    size_t most = 0;
    for (int a = 0; a < static_cast<int>(graph.steps().size()); ++a) {
      if (graph.OutputOf(a) >= 0) continue;
      const size_t begin = graph.OffsetOf(a);
      const size_t end = begin + graph.steps()[static_cast<size_t>(a)].problem.outputs[0].bytes();
      EXPECT_EQ(begin % kOperandAlignmentBytes, 0u);
      EXPECT_LE(end, graph.arena_bytes());
      most = std::max(most, end);
      for (int b = a + 1; b < static_cast<int>(graph.steps().size()); ++b) {
        if (graph.OutputOf(b) >= 0 || b > drawn.LastUse(a)) continue;
        const size_t other = graph.OffsetOf(b);
        const size_t other_end =
            other + graph.steps()[static_cast<size_t>(b)].problem.outputs[0].bytes();
        EXPECT_TRUE(end <= other || other_end <= begin) << a << " and " << b;
      }
    }
    EXPECT_LT(graph.arena_bytes(), most + kOperandAlignmentBytes);
  }
}

TEST(StepGraphTest, EqualGraphsAreEqualAndOthersAreNot) {
  const auto make = [](int steps, std::vector<int> outputs, bool timed) {
    return std::make_shared<const StepGraph>(Chain(steps), std::move(outputs), timed);
  };
  const TensorSpec input = {DataType::kFloat32, {100}};
  const auto problem = [&](const std::shared_ptr<const StepGraph>& graph) {
    return MakeGraphProblem(graph, absl::MakeConstSpan(&input, 1));
  };
  const Problem first = problem(make(3, {2}, false));
  EXPECT_TRUE(first == problem(make(3, {2}, false)));
  EXPECT_EQ(absl::HashOf(first), absl::HashOf(problem(make(3, {2}, false))));
  EXPECT_FALSE(first == problem(make(3, {2}, true)));
  EXPECT_FALSE(first == problem(make(4, {3}, false)));
  const auto rewired = [] {
    std::vector<Step> steps = Chain(3);
    steps[2].inputs[0] = {false, 0};
    return steps;
  }();
  EXPECT_FALSE(first == problem(std::make_shared<const StepGraph>(rewired, std::vector{2}, false)));
  const Row* const row = &CpuKernels().rows()[0];
  EXPECT_FALSE(first == problem(first.graph->With({row, row, row})));
  // A graph is no problem of an op with the same operands.
  Problem plain = first;
  plain.graph = nullptr;
  EXPECT_FALSE(first == plain);
}

// What is planned and run, by rows of a test's own.
class GraphPlanTest : public ::testing::Test {
 protected:
  GraphPlanTest() {
    const auto add = [this](const char* name, bool slow, auto plan) {
      rows_.push_back({static_cast<int>(rows_.size()), 0,
                       Implementation{.name = name,
                                      .family = Family::kCpu,
                                      .device_kind = DeviceKind::kCpu,
                                      .summary = "",
                                      .data_types = {},
                                      .supports = SupportsAll,
                                      .slow_to_plan = slow,
                                      .plan = plan}});
    };
    // y = x + 1
    const auto enqueue = [this](const Operands& operands, const LaunchContext& context) {
      settled_.push_back(context.settled_inputs);
      const auto* const x = static_cast<const float*>(operands.inputs[0]);
      auto* const y = static_cast<float*>(operands.outputs[0]);
      for (int i = 0; i < 100; ++i) y[i] = x[i] + 1;
      ++launches_;
      return launches_ == failing_launch_ ? absl::InternalError("no") : absl::OkStatus();
    };
    add("adding", false, [this, enqueue](const Problem&, const PlanContext&) {
      ++planned_;
      return NewPlan({.workspace_bytes = 1000, .may_be_replayed = true}, enqueue);
    });
    add("trying", true, [this, enqueue](const Problem&, const PlanContext& context) {
      if (context.tryout != nullptr)
        tried_on_.push_back(*static_cast<const float*>(context.tryout->operands->inputs[0]));
      ++planned_;
      return NewPlan({.workspace_bytes = 3000}, enqueue);
    });
    add("refusing", false, [](const Problem&, const PlanContext&) -> absl::StatusOr<PlanPtr> {
      return absl::UnimplementedError("not this");
    });
  }

  Problem Graph(std::vector<int> rows, std::vector<int> outputs, bool timed = false) const {
    std::vector<Step> steps = Chain(static_cast<int>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) steps[i].row = &rows_[static_cast<size_t>(rows[i])];
    const TensorSpec input = {DataType::kFloat32, {100}};
    return MakeGraphProblem(
        std::make_shared<const StepGraph>(std::move(steps), std::move(outputs), timed),
        absl::MakeConstSpan(&input, 1));
  }

  absl::StatusOr<PlanPtr> Plan(const Problem& problem) {
    return PlanGraph(problem, {.device = &testing::TestDeviceProperties(), .plans = &cache_});
  }
  absl::StatusOr<PlanPtr> PlanTrying(const Problem& problem) {
    const auto workspace = [this](size_t bytes) -> absl::StatusOr<void*> {
      return memory_.emplace_back(bytes).data();
    };
    const Tryout tryout = {nullptr, &operands_, workspace};
    return PlanGraph(problem, {.device = &testing::TestDeviceProperties(), .tryout = &tryout});
  }
  absl::Status Run(const warpcall::Plan& plan, StepClock* clock = nullptr) {
    const testing::Memory workspace(plan.traits().workspace_bytes);
    return plan.Enqueue(operands_,
                        {.workspace = workspace.data(), .stop = stop_, .step_clock = clock});
  }

  std::vector<float> x_ = std::vector<float>(100, 5);
  std::vector<float> y_ = std::vector<float>(100);
  std::vector<float> z_ = std::vector<float>(100);
  Operands operands_ = {.inputs = {x_.data()}, .outputs = {y_.data(), z_.data()}};
  std::vector<Row> rows_;
  std::vector<testing::Memory> memory_;
  std::vector<float> tried_on_;
  std::vector<uint32_t> settled_;  // by launch
  PlanCache cache_;
  const StopFlag* stop_ = nullptr;
  int planned_ = 0;
  int launches_ = 0;
  int failing_launch_ = -1;
};

TEST_F(GraphPlanTest, RunsTheStepsInTheirOrderAndGivesAllOutputs) {
  const auto plan = Plan(Graph({0, 0, 0, 0}, {3, 1}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->traits().workspace_bytes, 512u + 1000);
  EXPECT_TRUE((*plan)->traits().may_be_replayed);
  EXPECT_EQ((*plan)->Steps().size(), 4u);
  ASSERT_TRUE(Run(**plan).ok());
  EXPECT_EQ(y_, std::vector<float>(100, 9));
  EXPECT_EQ(z_, std::vector<float>(100, 7));
}

// What the step before makes may not be read before that step has ended.
TEST_F(GraphPlanTest, TellsWhichInputsTheStepBeforeDoesNotMake) {
  std::vector<Step> steps = Chain(4);
  for (Step& step : steps) step.row = rows_.data();
  steps[1].inputs = {{true, 0}};
  steps[3].inputs = {{false, 1}};
  const TensorSpec input = {DataType::kFloat32, {100}};
  const auto plan = Plan(MakeGraphProblem(
      std::make_shared<const StepGraph>(std::move(steps), std::vector<int>{3, 0}, false),
      absl::MakeConstSpan(&input, 1)));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(Run(**plan).ok());
  EXPECT_EQ(settled_, (std::vector<uint32_t>{0, 1, 0, 1}));
}

TEST_F(GraphPlanTest, StepsShareThePlansOfTheirRows) {
  ASSERT_TRUE(Plan(Graph({0, 0, 0}, {2})).ok());
  EXPECT_EQ(planned_, 1);
  ASSERT_TRUE(Plan(Graph({0, 1, 0}, {2})).ok());
  EXPECT_EQ(planned_, 2);
}

// A row that measures candidates must not do so on memory that nobody has written.
TEST_F(GraphPlanTest, WhatIsTriedIsTriedOnTheResultsOfTheStepsBefore) {
  const auto plan = PlanTrying(Graph({0, 1, 1}, {2}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(tried_on_, (std::vector<float>{6, 7}));
  EXPECT_FALSE((*plan)->traits().may_be_replayed);
}

TEST_F(GraphPlanTest, AnErrorHasTheNumberOfItsStep) {
  const auto plan = Plan(Graph({0, 2, 0}, {2}));
  EXPECT_EQ(plan.status().message(), "not this");
  EXPECT_EQ(StepOf(plan.status()), 1);
  EXPECT_EQ(StepOf(absl::InternalError("no")), std::nullopt);
  const auto failing = Plan(Graph({0, 0, 0}, {2}));
  ASSERT_TRUE(failing.ok());
  failing_launch_ = 3;
  EXPECT_EQ(StepOf(Run(**failing)), 2);
}

class StopAfter final : public StopFlag {
 public:
  StopAfter(const int* launches, int limit) : launches_(*launches), limit_(limit) {}
  bool IsSet() const override { return launches_ >= limit_; }

 private:
  const int& launches_;
  const int limit_;
};

TEST_F(GraphPlanTest, StopsBetweenSteps) {
  const auto plan = Plan(Graph({0, 0, 0, 0}, {3, 1}));
  ASSERT_TRUE(plan.ok());
  const StopAfter stop(&launches_, 2);
  stop_ = &stop;
  EXPECT_TRUE(Run(**plan).ok());
  EXPECT_EQ(launches_, 2);
}

class CountingClock final : public StepClock {
 public:
  absl::Status Begin(int steps) override {
    calls.push_back(steps);
    return absl::OkStatus();
  }
  absl::Status Stamp() override {
    calls.push_back(-1);
    return absl::OkStatus();
  }
  absl::Status End() override {
    calls.push_back(-2);
    return absl::OkStatus();
  }
  std::vector<int> calls;
};

TEST_F(GraphPlanTest, StampsEachStepAndIsNotReplayedWhereTheGraphTimesThem) {
  CountingClock clock;
  const auto timed = Plan(Graph({0, 0}, {1}, true));
  ASSERT_TRUE(timed.ok());
  EXPECT_FALSE((*timed)->traits().may_be_replayed);
  ASSERT_TRUE(Run(**timed, &clock).ok());
  EXPECT_EQ(clock.calls, (std::vector<int>{2, -1, -1, -1, -1, -2}));
}

TEST(GraphKernelTest, IsNamedByNoRequest) {
  Registry registry;
  AddCpuKernels(&registry);
  AddGraphKernel({DeviceKind::kCpu}, &registry);
  EXPECT_FALSE(GraphKernel(registry).is_named());
  const auto found = registry.Find("graph");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(found.status().message().find(", graph"), absl::string_view::npos);
}

}  // namespace
}  // namespace warpcall
