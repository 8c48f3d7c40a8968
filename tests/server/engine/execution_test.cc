// State that an execution keeps for a job, and from one job to the next.
#include "server/engine/execution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/graph/graph_plan.h"
#include "kernels/graph/step_graph.h"
#include "server/engine/graph_memory.h"
#include "server/engine/run_watch.h"
#include "tests/server/fake_device.h"
#include "tests/server/small_op.h"

namespace warpcall {
namespace {

using testing::FakeDevice;

const Op& SameOp() {
  static const Op& op = testing::NewSmallOp("same", "");
  return op;
}

// The plans made so far; each holds the problem that it was made for.
std::vector<std::weak_ptr<const Plan>>& Plans() {
  static auto* const plans = new std::vector<std::weak_ptr<const Plan>>;
  return *plans;
}
size_t PlansAlive() {
  size_t alive = 0;
  for (const std::weak_ptr<const Plan>& plan : Plans()) alive += plan.expired() ? 0 : 1;
  return alive;
}

// Traits of the plans that are made next.
Plan::Traits traits;
// The elements of all launches.
int64_t launched_elements = 0;

absl::StatusOr<PlanPtr> MakePlan(const Problem& problem, const PlanContext&) {
  PlanPtr plan = NewPlan(
      traits, [elements = problem.inputs[0].elements()](const Operands&, const LaunchContext&) {
        launched_elements += elements;
        return absl::OkStatus();
      });
  Plans().push_back(plan);
  return plan;
}

Implementation MakeRow() {
  return {.name = "row",
          .family = Family::kLibrary,
          .device_kind = DeviceKind::kCpu,
          .summary = "",
          .data_types = {DataType::kFloat32},
          .supports = SupportsAll,
          .plan = MakePlan};
}

class ExecutionTest : public ::testing::Test {
 protected:
  ExecutionTest() : execution_(&device_, *device_.CreateStream(), MonotonicNs) {
    Plans().clear();
    traits = {};
    launched_elements = 0;
  }

  absl::Status Run(int64_t elements) {
    Job job;
    job.op = &SameOp();
    job.row = &row_;
    job.problem = *MakeProblem(SameOp(), {TensorSpec{DataType::kFloat32, {elements}}}, {});
    job.input_bytes = job.output_bytes = 4 * elements;
    RequestTrace trace;
    job.trace = &trace;
    staging_.resize(static_cast<size_t>(2 * elements));
    const auto bytes = static_cast<size_t>(4 * elements);
    const StagingRange ranges[] = {{reinterpret_cast<char*>(staging_.data()), bytes},
                                   {reinterpret_cast<char*>(staging_.data() + elements), bytes}};
    return execution_.Run(job, ranges);
  }

  FakeDevice::Control control_;
  FakeDevice device_{&control_, "fake:0"};
  Row row_ = {0, 0, MakeRow()};
  std::vector<float> staging_;
  Execution execution_;
};

TEST_F(ExecutionTest, EveryRoundIsLaunchedWithThePlanThatWasMadeForIt) {
  control_.round_bytes = 1 << 10;
  ASSERT_TRUE(Run(1000).ok());  // the last round is shorter
  EXPECT_GT(control_.rounds, 2);
  EXPECT_EQ(Plans().size(), 2u);
  EXPECT_EQ(launched_elements, 1000);
  ASSERT_TRUE(Run(1000).ok());  // by the same plans
  EXPECT_EQ(Plans().size(), 2u);
}

// y[i, j] = x[i, 0] + weight[j]
absl::Status AddWeight(const Problem& problem, const Operands& operands, const LaunchContext&) {
  const Dims& x = problem.inputs[0].dims;
  const int64_t columns = problem.inputs[1].dims[0];
  for (int64_t i = 0; i < x[0]; ++i)
    for (int64_t j = 0; j < columns; ++j)
      static_cast<float*>(operands.outputs[0])[i * columns + j] =
          static_cast<const float*>(operands.inputs[0])[i * x[1]] +
          static_cast<const float*>(operands.inputs[1])[j];
  return absl::OkStatus();
}

TEST_F(ExecutionTest, ASharedInputIsCopiedOnceAndEveryRoundHasAllOfIt) {
  constexpr int64_t kRows = 1000, kX = 3, kColumns = 5;
  static const Op& op = testing::NewSharingOp("sharing");
  row_.implementation.plan = PlanBy(AddWeight);
  control_.round_bytes = 4 << 10;
  Job job;
  job.op = &op;
  job.row = &row_;
  job.problem =
      *MakeProblem(op, {{DataType::kFloat32, {kRows, kX}}, {DataType::kFloat32, {kColumns}}}, {});
  RequestTrace trace;
  job.trace = &trace;
  std::vector<float> x(kRows * kX), weight(kColumns), y(kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.25f * static_cast<float>(i);
  const auto range = [](std::vector<float>& values) {
    return StagingRange{reinterpret_cast<char*>(values.data()), 4 * values.size()};
  };
  const StagingRange ranges[] = {range(x), range(weight), range(y)};
  ASSERT_TRUE(execution_.Run(job, ranges).ok());
  EXPECT_GT(control_.rounds, 2);
  EXPECT_EQ(control_.copies, 2 * control_.rounds + 1);
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(y[i], x[i / kColumns * kX] + weight[i % kColumns]) << i;
}

// y[i, j] = x[i, 0] + weight[j], on a device that keeps its memory apart from staging, with some of
// the operands there already.
class ResidentOperandsTest : public ExecutionTest {
 protected:
  static constexpr int64_t kRows = 1000, kX = 3, kColumns = 5;

  ResidentOperandsTest() {
    residents_.AddDevice({"fake:0", DeviceKind::kCpu, 1 << 20});
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i);
    for (size_t i = 0; i < weight_.size(); ++i) weight_[i] = 0.25f * static_cast<float>(i);
    row_.implementation.plan = PlanBy(AddWeight);
    control_.round_bytes = 4 << 10;
  }

  // A tensor on the device, `before` floats behind its beginning, with these values or with room
  // for them.
  ResidentPlace Stay(const std::vector<float>& values, bool is_output, size_t before = 0) {
    const auto count = static_cast<int64_t>(before + values.size());
    ResidentContentPtr content =
        *residents_.Reserve({"alice"}, TensorSpec{DataType::kFloat32, {count}}, 0);
    if (!is_output) {
      EXPECT_TRUE(
          content->Allocate([this](size_t bytes) { return device_.AllocateResident(bytes); }).ok());
      std::copy(values.begin(), values.end(), reinterpret_cast<float*>(content->data()) + before);
    }
    return {std::move(content), before * sizeof(float)};
  }

  // Runs it with such operands, in the order of x, weight and y.
  void RunWith(std::vector<ResidentPlace> places) {
    static const Op& op = testing::NewSharingOp("sharing");
    Job job;
    job.op = &op;
    job.row = &row_;
    job.problem =
        *MakeProblem(op, {{DataType::kFloat32, {kRows, kX}}, {DataType::kFloat32, {kColumns}}}, {});
    RequestTrace trace;
    job.trace = &trace;
    std::vector<float>* const values[] = {&x_, &weight_, &y_};
    absl::InlinedVector<StagingRange, 3> ranges;
    for (size_t i = 0; i < 3; ++i)
      ranges.push_back(places[i].content != nullptr
                           ? StagingRange{nullptr, 0}
                           : StagingRange{reinterpret_cast<char*>(values[i]->data()),
                                          sizeof(float) * values[i]->size()});
    job.residents.assign(places.begin(), places.end());
    ASSERT_TRUE(execution_.Run(job, ranges).ok());
  }
  void ExpectRight(const float* y) {
    for (size_t i = 0; i < y_.size(); ++i)
      ASSERT_EQ(y[i], x_[i / kColumns * kX] + weight_[i % kColumns]) << i;
  }

  Residents residents_{{.unix_ns = nullptr, .timer = false}};
  std::vector<float> x_ = std::vector<float>(kRows * kX);
  std::vector<float> weight_ = std::vector<float>(kColumns);
  std::vector<float> y_ = std::vector<float>(kRows * kColumns);
};

TEST_F(ResidentOperandsTest, ASharedInputIsNotCopiedAndTheRestGoesInRounds) {
  RunWith({{}, Stay(weight_, false), {}});
  EXPECT_GT(control_.rounds, 2);
  EXPECT_EQ(control_.copies, 2 * control_.rounds);
  ExpectRight(y_.data());
}

TEST_F(ResidentOperandsTest, ASplitInputMakesTheJobOneRound) {
  RunWith({Stay(x_, false, 64), {}, {}});
  EXPECT_EQ(control_.rounds, 1);
  EXPECT_EQ(control_.copies, 2);
  ExpectRight(y_.data());
}

TEST_F(ResidentOperandsTest, AnOutputStaysWhereItWasComputed) {
  const ResidentPlace y = Stay(y_, true, 64);
  RunWith({{}, {}, y});
  EXPECT_EQ(control_.rounds, 1);
  EXPECT_EQ(control_.copies, 2);
  ExpectRight(reinterpret_cast<const float*>(y.data()));
  EXPECT_EQ(y_, std::vector<float>(kRows * kColumns));
}

TEST_F(ResidentOperandsTest, WhatStaysIsNoWorkThatTakesTime) {
  static const Op& op = testing::NewSharingOp("sharing");
  RequestTrace trace;
  trace.work = {.bytes = 10'000, .flops = 7};
  Job job;
  job.trace = &trace;
  job.problem =
      *MakeProblem(op, {{DataType::kFloat32, {kRows, kX}}, {DataType::kFloat32, {kColumns}}}, {});
  EXPECT_FALSE(job.timed_work().has_residents);
  EXPECT_EQ(job.timed_work().work.bytes, 10'000);
  job.residents = {{}, Stay(weight_, false), {}};
  EXPECT_TRUE(job.timed_work().has_residents);
  EXPECT_EQ(job.timed_work().work.bytes, 10'000 - static_cast<int64_t>(sizeof(float)) * kColumns);
  EXPECT_EQ(job.timed_work().work.flops, 7);
}

TEST_F(ResidentOperandsTest, WhoLearnsOfTheEndFindsTheRoomOfWhatHadNoNameLeft) {
  auto job = std::make_unique<Job>();
  job->residents = {{}, Stay(weight_, false), {}};
  EXPECT_GT(residents_.usage(0).bytes, 0);
  int64_t held = -1;
  job->done = [&](const absl::Status&, const StagingBuffers&) { held = residents_.usage(0).bytes; };
  EndJob(std::move(job), absl::CancelledError("the client went away"));
  EXPECT_EQ(held, 0);
}

// Small operands are copied beside a large one that stays, for the kernel reads them again and
// again.
TEST_F(ResidentOperandsTest, WhatStaysCountsForTheChoiceOfHostMemory) {
  constexpr size_t kBytes = sizeof(float) * (kRows * kX + kColumns + kRows * kColumns);
  control_.kernels_use_staging = true;
  for (const bool fits : {true, false}) {
    control_.use_staging_bytes_max = fits ? kBytes : kBytes - 1;
    control_.copies = 0;
    RunWith({{}, Stay(weight_, false), {}});
    EXPECT_EQ(control_.copies > 0, !fits);
    ExpectRight(y_.data());
  }
}

TEST_F(ExecutionTest, PlansAreKeptUntilTheDeviceIsDone) {
  int waited = 0;
  control_.on_operation = [&](const char* operation) {
    if (std::string(operation) != "synchronize") return absl::OkStatus();
    ++waited;
    device_.plans().Clear();
    EXPECT_EQ(PlansAlive(), 1u);
    return absl::OkStatus();
  };
  ASSERT_TRUE(Run(100).ok());
  EXPECT_EQ(waited, 1);
  EXPECT_EQ(PlansAlive(), 0u);
  // An error in the middle changes nothing: the enqueued work runs.
  control_.on_operation = [&](const char* operation) {
    if (std::string(operation) == "d2h") return absl::InternalError("no copy");
    if (std::string(operation) == "synchronize") {
      ++waited;
      device_.plans().Clear();
      EXPECT_EQ(PlansAlive(), 1u);
    }
    return absl::OkStatus();
  };
  EXPECT_FALSE(Run(100).ok());
  EXPECT_EQ(waited, 2);
  EXPECT_EQ(PlansAlive(), 0u);
}

TEST_F(ExecutionTest, RecordsPlansThatDependOnNothingButTheirOperandsAndSaySo) {
  control_.records = true;
  control_.kernels_use_staging = true;
  const auto recordings = [this] {
    control_.recordings = 0;
    device_.plans().Clear();
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(Run(100).ok());
    return control_.recordings.load();
  };
  row_.implementation.suits_host_memory = true;  // says nothing about replaying
  EXPECT_EQ(recordings(), 0);
  traits.may_be_replayed = true;
  // A workspace that may lie elsewhere next time.
  traits.workspace_bytes = size_t{2} << 20;
  EXPECT_EQ(recordings(), 0);
  traits.workspace_bytes = 400;
  EXPECT_EQ(recordings(), 1);
  traits.workspace_bytes = 0;
  EXPECT_EQ(recordings(), 1);
  EXPECT_TRUE(control_.recorded_copies.inputs.empty());
  EXPECT_TRUE(control_.recorded_copies.outputs.empty());
}

// Operands that are copied to the device lie where they lay before.
TEST_F(ExecutionTest, RecordsTheCopiesOfSmallJobsToo) {
  control_.records = true;
  control_.pools_memory = true;
  traits = {.workspace_bytes = 400, .may_be_replayed = true};
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Run(100).ok());
  EXPECT_EQ(control_.recordings, 1);
  EXPECT_EQ(control_.copies, 2 * 3);  // of the runs before
  const RecordedCopies& copies = control_.recorded_copies;
  ASSERT_EQ(copies.inputs.size(), 1u);
  ASSERT_EQ(copies.outputs.size(), 1u);
  EXPECT_EQ(copies.inputs[0].from, staging_.data());
  EXPECT_EQ(copies.outputs[0].to, staging_.data() + 100);
  EXPECT_EQ(copies.inputs[0].bytes, 400u);
  EXPECT_EQ(copies.outputs[0].bytes, 400u);
  EXPECT_NE(copies.inputs[0].to, copies.outputs[0].from);
  EXPECT_EQ(control_.memory_used_bytes, int64_t{1} << 20);  // kept
  // Other staging is another job.
  std::vector<float> moved(1000);
  staging_.swap(moved);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Run(100).ok());
  EXPECT_EQ(control_.recordings, 2);
  // More bytes than a recording copies.
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Run(10'000).ok());
  EXPECT_EQ(control_.recordings, 2);
  EXPECT_EQ(control_.memory_used_bytes, int64_t{1} << 20);
}

// Graphs of steps that each add 1, on a device that records.
class GraphExecutionTest : public ExecutionTest {
 protected:
  GraphExecutionTest() {
    control_.records = true;
    row_.implementation.plan = [](const Problem& problem, const PlanContext&) {
      return NewPlan({.workspace_bytes = 256, .may_be_replayed = true},
                     [elements = problem.inputs[0].elements()](const Operands& operands,
                                                               const LaunchContext& context) {
                       static_cast<FakeDevice::Control*>(context.stream)
                           ->Launch([=, workspace = static_cast<float*>(context.workspace)] {
                             const auto* const x = static_cast<const float*>(operands.inputs[0]);
                             auto* const y = static_cast<float*>(operands.outputs[0]);
                             *workspace = 1;
                             for (int64_t i = 0; i < elements; ++i) y[i] = x[i] + *workspace;
                           });
                       return absl::OkStatus();
                     });
    };
    graph_row_.implementation.plan = PlanGraph;
    execution_of_graphs_.emplace(&device_, *device_.CreateStream(), MonotonicNs);
  }

  // Its inputs are x and, for the last step, a tensor that stays or one that travels.
  Problem Graph(int steps, int64_t elements) {
    std::vector<Step> chain;
    for (int i = 0; i < steps; ++i)
      chain.push_back(
          {.op = &SameOp(),
           .row = &row_,
           .problem = *MakeProblem(SameOp(), {TensorSpec{DataType::kFloat32, {elements}}}, {}),
           .inputs = {{i == 0, std::max(i - 1, 0)}}});
    const TensorSpec input = {DataType::kFloat32, {elements}};
    return MakeGraphProblem(
        std::make_shared<const StepGraph>(std::move(chain), std::vector{steps - 1}, false),
        absl::MakeConstSpan(&input, 1));
  }

  // Runs it on `x` everywhere, and returns whether it was replayed. Memory that `kept` gives the
  // output: it stays there.
  bool Run(const Problem& problem, float x, std::shared_ptr<ResidentMemory> kept = nullptr) {
    const auto elements = static_cast<size_t>(problem.inputs[0].elements());
    const size_t bytes = 4 * elements;
    std::vector<float>& staging =
        staged_there_.empty() ? *staging_of_.emplace_back(new std::vector<float>(2 * elements))
                              : staged_there_;
    std::fill_n(staging.begin(), elements, x);
    Job job;
    job.op = &SameOp();
    job.row = &graph_row_;
    job.problem = problem;
    RequestTrace trace;
    trace.graph = std::make_shared<GraphRun>(GraphRun{problem.graph});
    job.trace = &trace;
    job.cancelled = &is_cancelled_;
    const RunLimits limits = {MonotonicNs, kNoDeadline};
    const RunWatch watch(job, limits, MonotonicNs());
    job.watch = &watch;
    std::vector<StagingRange> ranges = {
        {reinterpret_cast<char*>(staging.data()), bytes},
        {reinterpret_cast<char*>(staging.data() + elements), bytes}};
    if (kept != nullptr) {
      job.residents = {{}, {kept, 0}};
      ranges[1] = {nullptr, 0};
    }
    const absl::Status status = execution_of_graphs_->Run(job, ranges);
    EXPECT_TRUE(status.ok()) << status;
    if (!watch.Check().ok()) return trace.graph->replayed;
    const float* const y =
        kept == nullptr ? staging.data() + elements : reinterpret_cast<const float*>(kept->data());
    const auto expected = x + static_cast<float>(problem.graph->steps().size());
    EXPECT_EQ(std::count(y, y + elements, expected), static_cast<int64_t>(elements));
    return trace.graph->replayed;
  }
  // Runs until it is replayed; returns the number of runs before.
  int RunsBeforeReplay(const Problem& problem) {
    for (int i = 0; i < 100; ++i)
      if (Run(problem, static_cast<float>(i))) return i;
    return -1;
  }

  Row graph_row_ = {1, 0, MakeRow()};
  std::optional<Execution> execution_of_graphs_;
  std::atomic<bool> is_cancelled_{false};
  std::vector<float> staged_there_;  // empty: elsewhere each time
  std::vector<std::unique_ptr<std::vector<float>>> staging_of_;
};

TEST_F(GraphExecutionTest, AGraphWhoseCopiesAreLargeIsReplayedFromTheFourthTimeWhereverItsDataLie) {
  const Problem graph = Graph(3, 100'000);
  EXPECT_EQ(RunsBeforeReplay(graph), 3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Run(graph, static_cast<float>(100 + i)));
  EXPECT_EQ(control_.recordings, 1);
  EXPECT_TRUE(control_.recorded_copies.inputs.empty());
}

TEST_F(GraphExecutionTest, WhatStaysIsCopiedThereAfterAReplay) {
  const Problem graph = Graph(2, 100);
  for (int i = 0; i < 8; ++i) {
    auto kept = std::make_shared<ResidentMemory>(400);
    EXPECT_EQ(Run(graph, static_cast<float>(i), kept), i >= 3) << i;
  }
  EXPECT_EQ(control_.recordings, 1);
}

// Small ones are recorded with their copies, so they repeat where their data lie at one place.
TEST_F(GraphExecutionTest, ASmallGraphElsewhereIsRunAndNotReplayed) {
  const Problem graph = Graph(3, 10);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(Run(graph, static_cast<float>(i)));
}

TEST_F(GraphExecutionTest, GraphsKeepNoMoreMemoryThanTheyMayAndComeBackRight) {
  device_.SetGraphBytesMax(5 << 20);
  execution_of_graphs_.emplace(&device_, *device_.CreateStream(), MonotonicNs);
  std::vector<Problem> graphs;
  for (int i = 0; i < 6; ++i) graphs.push_back(Graph(2 + i, 100'000 + 1000 * i));
  int replayed = 0;
  for (int i = 0; i < 300; ++i) {
    // The first ones often, the others now and then.
    const size_t which =
        i % 7 == 0 ? static_cast<size_t>(2 + i / 7 % 4) : static_cast<size_t>(i % 2);
    replayed += Run(graphs[which], static_cast<float>(i)) ? 1 : 0;
    EXPECT_LE(control_.memory_used_bytes, 5 << 20);
  }
  EXPECT_GT(replayed, 50);
}

// Its operands lie where they lay, its workspace elsewhere, and the old one belongs to others.
TEST_F(GraphExecutionTest, ARecordingWithAnotherWorkspaceIsNotReplayed) {
  constexpr size_t kOperandBytes = 2 * 400'128;
  constexpr size_t kWorkspaceBytes = 400'128 + 256;
  std::vector<char> operands(kOperandBytes + 256);
  std::vector<char> workspaces[2];
  int given = 0;
  const auto aligned = [](std::vector<char>& memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return reinterpret_cast<void*>((address + 255) / 256 * 256);
  };
  for (std::vector<char>& workspace : workspaces) workspace.assign(kWorkspaceBytes + 256, 0);
  control_.memory = [&](size_t bytes) -> void* {
    if (bytes == kOperandBytes) return aligned(operands);
    return bytes == kWorkspaceBytes ? aligned(workspaces[given++ % 2]) : nullptr;
  };
  device_.SetGraphBytesMax(3 << 20);
  execution_of_graphs_.emplace(&device_, *device_.CreateStream(), MonotonicNs);
  const Problem graph = Graph(2, 100'000);
  EXPECT_EQ(RunsBeforeReplay(graph), 3);
  Run(Graph(3, 200'000), 1);  // in place of it
  std::vector<char>& old = workspaces[0];
  std::fill(old.begin(), old.end(), 'x');
  EXPECT_FALSE(Run(graph, 7));
  EXPECT_EQ(given, 2);
  EXPECT_EQ(std::count(old.begin(), old.end(), 'x'), static_cast<int64_t>(old.size()));
}

// Its copies are recorded, and its data are staged where they were.
TEST_F(GraphExecutionTest, ARecordingOfASmallGraphIsNotReplayedWhenItsPlaceIsAnother) {
  std::vector<char> places[2];
  std::vector<char> workspace(2 * 256);
  for (std::vector<char>& place : places) place.assign(1024 + 256, 'x');
  int given = 0;
  const auto aligned = [](std::vector<char>& memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return reinterpret_cast<void*>((address + 255) / 256 * 256);
  };
  control_.memory = [&](size_t bytes) -> void* {
    if (bytes == 1024) return aligned(places[given++ % 2]);
    return bytes == 256 ? aligned(workspace) : nullptr;
  };
  device_.SetGraphBytesMax(3000);
  execution_of_graphs_.emplace(&device_, *device_.CreateStream(), MonotonicNs);
  staged_there_.resize(400);
  const Problem graph = Graph(1, 100);
  EXPECT_EQ(RunsBeforeReplay(graph), 3);
  Run(Graph(1, 200), 1);  // in place of it
  std::fill(places[0].begin(), places[0].end(), 'x');
  EXPECT_FALSE(Run(graph, 7));
  EXPECT_EQ(given, 2);
  EXPECT_EQ(std::count(places[0].begin(), places[0].end(), 'x'),
            static_cast<int64_t>(places[0].size()));
}

TEST_F(GraphExecutionTest, ARecordingHasAllStepsThoughNobodyWaitsForTheFirstToReplayIt) {
  const Problem graph = Graph(3, 100'000);
  is_cancelled_ = true;
  EXPECT_EQ(RunsBeforeReplay(graph), 3);
  is_cancelled_ = false;
  EXPECT_TRUE(Run(graph, 1));
}

TEST_F(GraphExecutionTest, AnInputThatStaysAndOneThatIsSentMakeTwoPlacesOfOneGraph) {
  const std::unique_ptr<Stream> stream = *device_.CreateStream();
  GraphMemory memory(stream.get(), 1 << 20);
  const Problem graph = Graph(1, 256);
  const void* const without_input = memory.Find(graph, 1024)->operands.data();
  const GraphMemory::Place* const with_input = memory.Find(graph, 2048);
  EXPECT_EQ(with_input->operands.bytes(), 2048);
  EXPECT_NE(with_input->operands.data(), without_input);
  EXPECT_EQ(memory.Find(graph, 1024)->operands.data(), without_input);
  EXPECT_EQ(memory.used_bytes(), 3072);
}

TEST_F(GraphExecutionTest, AGraphThatDoesNotFitIsRunWithoutAPlaceOfItsOwn) {
  device_.SetGraphBytesMax(1000);
  execution_of_graphs_.emplace(&device_, *device_.CreateStream(), MonotonicNs);
  const Problem graph = Graph(3, 100'000);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(Run(graph, static_cast<float>(i)));
}

TEST_F(ExecutionTest, AWorkspaceIsKeptWhereMemoryIsNotPooledWhileItIsSmall) {
  traits.workspace_bytes = 400;
  ASSERT_TRUE(Run(100).ok());
  EXPECT_EQ(control_.memory_used_bytes, 400);
  traits.workspace_bytes = (size_t{256} << 20) + 1;
  ASSERT_TRUE(Run(101).ok());
  EXPECT_EQ(control_.memory_used_bytes, 0);
}

TEST_F(ExecutionTest, AWorkspaceGoesBackWithItsJobWhereMemoryIsPooled) {
  control_.pools_memory = true;
  traits.workspace_bytes = 400;
  int64_t used_while_running = 0;
  control_.on_operation = [&](const char*) {
    used_while_running = std::max<int64_t>(used_while_running, control_.memory_used_bytes);
    return absl::OkStatus();
  };
  ASSERT_TRUE(Run(100).ok());
  EXPECT_EQ(used_while_running, 2 * 400 + 400);
  EXPECT_EQ(control_.memory_used_bytes, 0);
}

}  // namespace
}  // namespace warpcall
