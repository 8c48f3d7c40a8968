// The engine's balance of jobs over devices; balancer_test covers loads of many clients.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "tests/server/engine/engine_fixture.h"

namespace warpcall {
namespace {

class EngineBalanceTest : public testing::EngineTest {
 protected:
  Candidate Choose() const { return Choose(problem_); }
  Candidate Choose(const Problem& problem) const {
    return *engine_->Choose(kernel_, "", "", problem);
  }

  void RunAs(Candidate choice) {
    testing::Call call;
    call.trace.work = kernel_.op->work(problem_);
    std::unique_ptr<Job> job = MakeJob(&call, 100, choice.device);
    job->load = std::move(choice.load);
    Run(&call, std::move(job));
    ASSERT_TRUE(call.status.ok()) << call.status;
  }

  const Kernel& kernel_ = **registry_.Find("double");
  const Problem problem_ = *MakeProblem(*kernel_.op, {TensorSpec{DataType::kFloat32, {100}}}, {});
};

// A device's first job loads code for later ones. Predictions follow the second of the two, and
// work assigned meanwhile must not count against a device for good.
TEST_F(EngineBalanceTest, WhatWasThoughtLongOnceDoesNotTiltTheBalance) {
  for (testing::FakeDevice::Control& control : control_)
    control.on_operation = [this, first = true](const char*) mutable {
      now_ns_ += std::exchange(first, false) ? 300'000'000 : 10'000;
      return absl::OkStatus();
    };
  int answers[2] = {0, 0};
  for (int i = 0; i < 400; ++i) {
    Candidate choice = Choose();
    ++answers[choice.device];
    RunAs(std::move(choice));
  }
  EXPECT_LE(std::abs(answers[0] - answers[1]), 400 * 7 / 100) << answers[0] << ":" << answers[1];
}

TEST_F(EngineBalanceTest, WhatWasChosenAndNotYetSubmittedCounts) {
  std::vector<Candidate> choices;
  int chosen[2] = {0, 0};
  for (int i = 0; i < 8; ++i) {
    choices.push_back(Choose());
    ++chosen[choices.back().device];
  }
  EXPECT_EQ(chosen[0], 4);
  EXPECT_EQ(chosen[1], 4);
}

TEST_F(EngineBalanceTest, WhatWasChosenAndNotYetSubmittedCountsByItsWork) {
  const Problem large =
      *MakeProblem(*kernel_.op, {TensorSpec{DataType::kFloat32, {int64_t{1} << 30}}}, {});
  const Candidate long_one = Choose(large);
  std::vector<Candidate> choices;
  for (int i = 0; i < 8; ++i) {
    choices.push_back(Choose());
    EXPECT_NE(choices.back().device, long_one.device);
  }
}

}  // namespace
}  // namespace warpcall
