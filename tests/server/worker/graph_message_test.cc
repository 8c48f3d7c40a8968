// Graphs on their way to a worker.
#include "server/worker/graph_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/graph/step_graph.h"
#include "server/worker/protocol.h"
#include "tests/cpu_kernels.h"

namespace warpcall::worker {
namespace {

using testing::CpuKernelsAndGraphs;
using ::testing::HasSubstr;

Step MakeStep(const char* kernel, std::vector<TensorSpec> inputs,
              std::vector<NamedAttribute> attributes, std::vector<GraphValue> values) {
  const Kernel& found = **CpuKernelsAndGraphs().Find(kernel);
  return {.op = found.op,
          .row = &CpuKernelsAndGraphs().rows()[static_cast<size_t>(found.rows.back())],
          .problem = *MakeProblem(*found.op, inputs, attributes),
          .inputs = {values.begin(), values.end()}};
}

// linear, fused and softmax; attributes of every type.
Problem SampleGraph(bool times_steps = true) {
  const TensorSpec x = {DataType::kBFloat16, {2, 3}};
  const TensorSpec weight = {DataType::kBFloat16, {5, 3}};
  const TensorSpec bias = {DataType::kBFloat16, {5}};
  const TensorSpec h = {DataType::kBFloat16, {2, 5}};
  std::vector<Step> steps;
  steps.push_back(MakeStep("linear", {x, weight, bias}, {{"activation", std::string("relu")}},
                           {{true, 0}, {true, 1}, {true, 2}}));
  steps.push_back(MakeStep("fused", {h, h},
                           {{"expression", std::string("x0 * x1")}, {"seed", int64_t{-7}}},
                           {{false, 0}, {false, 0}}));
  steps.push_back(MakeStep("rmsnorm", {h, bias}, {{"epsilon", 0.25}}, {{false, 1}, {true, 2}}));
  steps.push_back(MakeStep("matmul", {h, h}, {{"transpose_b", true}}, {{false, 2}, {false, 1}}));
  return MakeGraphProblem(
      std::make_shared<const StepGraph>(std::move(steps), std::vector<int>{3, 1}, times_steps),
      std::vector<TensorSpec>{x, weight, bias});
}

TEST(GraphMessageTest, AGraphArrivesAsItWasSent) {
  for (const bool times_steps : {false, true}) {
    const Problem sent = SampleGraph(times_steps);
    const absl::StatusOr<std::string> bytes = GraphToBytes(sent);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const absl::StatusOr<Problem> read = GraphFromBytes(*bytes, CpuKernelsAndGraphs());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == sent);
    EXPECT_EQ(read->graph->times_steps(), times_steps);
  }
}

TEST(GraphMessageTest, WhatIsCutOffOrChangedIsNoGraphOrAnother) {
  const std::string bytes = *GraphToBytes(SampleGraph());
  for (size_t end = 0; end < bytes.size(); ++end)
    ASSERT_FALSE(GraphFromBytes(bytes.substr(0, end), CpuKernelsAndGraphs()).ok()) << end;
  EXPECT_THAT(GraphFromBytes(bytes + "x", CpuKernelsAndGraphs()).status().message(),
              HasSubstr("1 bytes behind a graph"));
  std::mt19937 random(1);
  for (int run = 0; run < 20'000; ++run) {
    std::string changed = bytes;
    for (uint32_t k = 0; k <= random() % 3; ++k)
      changed[random() % changed.size()] = static_cast<char>(random());
    const absl::StatusOr<Problem> read = GraphFromBytes(changed, CpuKernelsAndGraphs());
    if (!read.ok()) continue;
    const absl::StatusOr<std::string> again = GraphToBytes(*read);
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(*GraphFromBytes(*again, CpuKernelsAndGraphs()) == *read);
  }
}

class GraphShelfTest : public ::testing::Test {
 protected:
  absl::Status Add(int number, size_t at) {
    RunRequest request = {};
    ToWire(number, bytes_, at, &request);
    return shelf_.Add(request, CpuKernelsAndGraphs());
  }
  absl::StatusOr<Problem> Find(int number) const {
    RunRequest request = {};
    request.graph = number;
    return shelf_.Find(request);
  }

  // A graph that takes three parts: its expressions are long.
  static Problem LongGraph() {
    const TensorSpec x = {DataType::kFloat32, {4}};
    std::vector<Step> steps;
    for (int i = 0; i < 3; ++i)
      steps.push_back(MakeStep(
          "fused", {x},
          {{"expression", absl::StrCat("x0", std::string(3000, ' '))}, {"seed", int64_t{i}}},
          {i == 0 ? GraphValue{true, 0} : GraphValue{false, i - 1}}));
    return MakeGraphProblem(
        std::make_shared<const StepGraph>(std::move(steps), std::vector<int>{2}, false),
        std::vector<TensorSpec>{x});
  }

  const Problem graph_ = LongGraph();
  const std::string bytes_ = *GraphToBytes(graph_);
  GraphShelf shelf_;
};

TEST_F(GraphShelfTest, PartsMakeAGraph) {
  ASSERT_GT(bytes_.size(), 2 * kGraphPartBytes);
  EXPECT_FALSE(Find(5).ok());
  for (size_t at = 0; at < bytes_.size(); at += kGraphPartBytes) {
    EXPECT_FALSE(Find(5).ok());
    EXPECT_TRUE(Add(5, at).ok());
  }
  ASSERT_TRUE(Find(5).ok());
  EXPECT_TRUE(*Find(5) == graph_);
  EXPECT_FALSE(Find(4).ok());
  EXPECT_FALSE(Find(-1).ok());
  EXPECT_FALSE(Find(kGraphsMax).ok());
}

TEST_F(GraphShelfTest, PartsInAnotherOrderAreRefusedAndABeginningBeginsAnew) {
  EXPECT_FALSE(Add(0, kGraphPartBytes).ok());
  EXPECT_TRUE(Add(0, 0).ok());
  EXPECT_FALSE(Add(0, 2 * kGraphPartBytes).ok());
  for (size_t at = 0; at < bytes_.size(); at += kGraphPartBytes) EXPECT_TRUE(Add(0, at).ok());
  EXPECT_TRUE(Find(0).ok());
}

TEST_F(GraphShelfTest, HostilePartsAreRefused) {
  RunRequest good = {};
  ToWire(0, bytes_, 0, &good);
  std::vector<RunRequest> requests(6, good);
  requests[0].graph = -1;
  requests[1].graph = kGraphsMax;
  requests[2].text_bytes = kTextsBytesMax + 1;
  requests[3].offsets[1] = kGraphBytesMax + 1;
  requests[4].offsets[1] = 10;  // fewer than come
  requests[5].operand_count = 1;
  for (const RunRequest& request : requests)
    EXPECT_FALSE(shelf_.Add(request, CpuKernelsAndGraphs()).ok()) << &request - requests.data();
  EXPECT_TRUE(shelf_.Add(good, CpuKernelsAndGraphs()).ok());
}

}  // namespace
}  // namespace warpcall::worker
