// The judge's tests have its kernels; this has what they do not reach.
#include "server/judge/output_witness.h"

#include <gtest/gtest.h>

#include "kernels/registry.h"
#include "server/inspect/operand_sets.h"
#include "server/runtime/cpu/cpu_device.h"

namespace warpcall::judge {
namespace {

class OutputWitnessTest : public ::testing::Test {
 protected:
  OutputWitnessTest() {
    AddCpuKernels(&registry_);
    const Kernel& gelu = **registry_.Find("gelu");
    op_ = gelu.op;
    row_ = &registry_.rows()[static_cast<size_t>(gelu.rows[0])];
    problem_ = *MakeProblem(*op_, {{DataType::kFloat32, {1000}}}, {});
    stream_ = *device_.CreateStream();
    EXPECT_TRUE(stream_->BindThread().ok());
    sets_.emplace(*inspect::OperandSets::Create({.problem = &problem_, .seed = 1, .sets = 3},
                                                device_.properties(), stream_.get(), &pool_));
    plan_ = *row_->implementation.plan(problem_, {.device = &device_.properties()});
  }

  std::unique_ptr<OutputWitness> Witness(bool deterministic = true) {
    return *OutputWitness::Create({&device_, &pool_}, {op_, &problem_, row_, plan_, deterministic},
                                  5);
  }
  void Launch(int64_t set) {
    ASSERT_TRUE(inspect::RunPhase(stream_.get(), Milestone::kKernelDone, [&] {
                  return plan_->Enqueue((*sets_)[set], {.stream = stream_->native_handle()});
                }).ok());
  }

  Registry registry_;
  CpuDevice device_{1};
  cpu::ThreadPool pool_{1};
  const Op* op_;
  const Row* row_;
  Problem problem_;
  std::unique_ptr<Stream> stream_;
  std::optional<inspect::OperandSets> sets_;
  PlanPtr plan_;
};

TEST_F(OutputWitnessTest, LaunchesThatDidTheirWorkAreFine) {
  const std::unique_ptr<OutputWitness> witness = Witness();
  ASSERT_TRUE(witness->Before(*row_, &*sets_).ok());
  Launch(2);
  Launch(0);
  EXPECT_TRUE(witness->After(*row_, &*sets_, {.first = 2, .count = 2}).ok());
  EXPECT_FALSE(witness->finding().has_value());
}

TEST_F(OutputWitnessTest, ASetThatWasLeftOutIsFound) {
  for (const bool deterministic : {false, true}) {
    const std::unique_ptr<OutputWitness> witness = Witness(deterministic);
    ASSERT_TRUE(witness->Before(*row_, &*sets_).ok());
    if (deterministic) Launch(0);
    EXPECT_FALSE(witness->After(*row_, &*sets_, {.first = 0, .count = deterministic ? 2 : 1}).ok());
    EXPECT_TRUE(witness->finding().has_value());
  }
}

TEST_F(OutputWitnessTest, InputsAreNewEachTime) {
  const std::unique_ptr<OutputWitness> witness = Witness();
  ASSERT_TRUE(witness->Before(*row_, &*sets_).ok());
  const auto first = [&](int64_t set) {
    return *static_cast<const float*>((*sets_)[set].inputs[0]);
  };
  const float before[] = {first(0), first(1), first(2)};
  EXPECT_NE(before[0], before[1]);
  ASSERT_TRUE(witness->Before(*row_, &*sets_).ok());
  for (int64_t i = 0; i < 3; ++i) EXPECT_NE(before[i], first(i));
}

TEST_F(OutputWitnessTest, OtherRowsAreLeftAlone) {
  const std::unique_ptr<OutputWitness> witness = Witness();
  const Row& other = registry_.rows()[0];
  const float before = *static_cast<const float*>((*sets_)[0].inputs[0]);
  ASSERT_TRUE(witness->Before(other, &*sets_).ok());
  EXPECT_EQ(*static_cast<const float*>((*sets_)[0].inputs[0]), before);
  EXPECT_TRUE(witness->After(other, &*sets_, {.first = 0, .count = 3}).ok());
}

}  // namespace
}  // namespace warpcall::judge
