// Predictions for rows of matmul, on a device whose launches take as long as the test says.
#include "server/inspect/foresight.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "kernels/check/cases.h"
#include "kernels/matmul/matmul.h"
#include "kernels/plan.h"
#include "tests/server/inspect/timed_device.h"
#include "tests/server/nanoseconds.h"

namespace warpcall::inspect {
namespace {

using testing::kMillisecond;
using testing::kSecond;

constexpr int kThreads = 16;

class ForesightTest : public ::testing::Test {
 protected:
  ForesightTest() : properties_(device_.properties()), stream_(*device_.CreateStream()) {
    properties_.multiprocessors = kThreads;
  }

  // Predicts a row of `op` that takes `cost` nanoseconds for a first input of so many rows. Pieces
  // use the problem's operands, which nobody touches.
  double Predict(const Op& op, const Problem& problem, std::function<int64_t(int64_t rows)> cost) {
    const Implementation row = {
        .name = "row",
        .family = Family::kManual,
        .device_kind = DeviceKind::kCpu,
        .summary = "",
        .data_types = {DataType::kFloat32},
        .supports = SupportsAll,
        .plan = [&](const Problem& piece, const PlanContext&) {
          const int64_t rows = piece.inputs[0].dims[0];
          return absl::StatusOr<PlanPtr>(
              NewPlan({}, [this, rows, cost](const Operands&, const LaunchContext&) {
                launched_.push_back(rows);
                device_.Pass(cost(rows));
                return absl::OkStatus();
              }));
        }};
    Registry registry;
    registry.Add(op, {row});
    Operands operands;
    operands.inputs.resize(problem.inputs.size());
    operands.outputs.resize(problem.outputs.size());
    Foresight foresight({&registry, &properties_, stream_.get(), &pool_, kNoDeadline,
                         [this] { return device_.now_ns(); }},
                        *registry.Find(op.name), &problem, &operands);
    const absl::StatusOr<double> predicted =
        foresight.Predict(registry.rows()[0].implementation, doubted_ns_);
    EXPECT_TRUE(predicted.ok()) << predicted.status();
    return predicted.value_or(-1);
  }

  testing::TimedDevice device_;
  DeviceProperties properties_;
  std::unique_ptr<Stream> stream_;
  cpu::ThreadPool pool_{1};
  // 4096 rows of a, which share 64 MiB of b.
  const Problem product_ = *MakeProblem(
      MatmulOp(), {{DataType::kFloat32, {4096, 4096}}, {DataType::kFloat32, {4096, 4096}}}, {});
  double doubted_ns_ = 5.0 * kSecond;
  std::vector<int64_t> launched_;  // their rows
};

TEST_F(ForesightTest, PiecesHaveARowForEveryThread) {
  const auto cost = [](int64_t rows) { return 30 * kMillisecond * ((rows + 15) / kThreads); };
  doubted_ns_ = 10.0 * kSecond;
  EXPECT_DOUBLE_EQ(Predict(MatmulOp(), product_, cost), 256 * 30.0 * kMillisecond);
  EXPECT_EQ(launched_.front(), kThreads);
}

// Every piece has to read b before it computes.
TEST_F(ForesightTest, WhatAllPartsShareIsCountedOnce) {
  const auto cost = [](int64_t rows) { return 300 * kMillisecond + rows * kMillisecond; };
  EXPECT_NEAR(Predict(MatmulOp(), product_, cost), 4.396e9, 1e7);
  EXPECT_EQ(launched_, std::vector<int64_t>({16, 16, 32, 32}));
}

TEST_F(ForesightTest, WhatIsFarTooSlowIsNotLaunchedOnASecondPiece) {
  const auto cost = [](int64_t rows) { return rows * 200 * kMillisecond; };
  EXPECT_NEAR(Predict(MatmulOp(), product_, cost), 819.2e9, 1e9);
  EXPECT_EQ(launched_, std::vector<int64_t>({16, 16}));
}

TEST_F(ForesightTest, PiecesOfAProblemNeedNoMemory) {
  Predict(MatmulOp(), product_, [](int64_t rows) { return rows * 10'000; });
  EXPECT_GT(launched_.size(), 2u);
  EXPECT_EQ(device_.allocated_bytes(), 0u);
}

// An op whose problems are one piece: slow ones have two dimensions, usual ones one.
Op UncutOp() {
  return {.name = "uncut",
          .summary = "",
          .input_names = {"x"},
          .attributes = {},
          .infer_outputs =
              [](Problem* problem) {
                problem->outputs = {problem->inputs[0]};
                return absl::OkStatus();
              },
          .work =
              [](const Problem& problem) {
                const int64_t elements = problem.inputs[0].elements();
                const bool is_heavy = problem.inputs[0].dims.size() == 2;
                return Work{8 * elements, (is_heavy ? 10'000 : 100) * elements};
              },
          .cases =
              [] {
                return OpCases{
                    .cases = {},
                    .errors = nullptr,
                    .tolerance = "",
                    .allowances = {},
                    .sized = [](int64_t elements) { return std::vector<Dims>{{elements}}; }};
              }};
}

TEST_F(ForesightTest, SmallerProblemsTakeNoMoreMemoryThanTheWhole) {
  static const Op& op = *new Op(UncutOp());
  for (const int64_t rows : {100, 10}) {
    const Problem problem = *MakeProblem(op, {{DataType::kFloat32, {rows, 1000}}}, {});
    const size_t before = device_.allocated_bytes();
    const double predicted_ns =
        Predict(op, problem, [](int64_t elements) { return elements * 1000; });
    const size_t taken = device_.allocated_bytes() - before;
    EXPECT_LE(taken, problem.inputs[0].bytes() + problem.outputs[0].bytes());
    EXPECT_EQ(predicted_ns > 0, taken > 0) << rows;
  }
}

}  // namespace
}  // namespace warpcall::inspect
