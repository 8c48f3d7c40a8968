// A row that refuses to plan a problem it was chosen for hands the job to the next row, and is not
// chosen for that problem again.
#include "server/engine/plan_refusals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/compiled/program.h"
#include "proto/common/status_macros.h"
#include "tests/server/engine/engine_fixture.h"

namespace warpcall {
namespace {

using testing::Call;

int g_plans_asked;

absl::StatusOr<PlanPtr> PlanNone(const Problem&, const PlanContext&) {
  ++g_plans_asked;
  return absl::UnimplementedError("no way to do it");
}

absl::StatusOr<PlanPtr> CompileNothing(const Problem&, const PlanContext&) {
  ++g_plans_asked;
  return compiled::AsCompileError(absl::InternalError("line 7"));
}

absl::StatusOr<PlanPtr> FailToPlan(const Problem&, const PlanContext&) {
  return absl::InternalError("a defect");
}

absl::Status FailToRun(const Problem&, const Operands&, const LaunchContext&) {
  return absl::InternalError("a defect");
}

class PlanRefusalsTest : public testing::EngineTest {
 protected:
  enum Id { kRefusing, kUncompilable, kTwice, kBroken, kFailing };

  PlanRefusalsTest() {
    g_plans_asked = 0;
    std::vector<Implementation> rows(5, registry_.rows()[0].implementation);
    rows[kRefusing].name = "refusing";
    rows[kRefusing].plan = PlanNone;
    rows[kUncompilable].name = "uncompilable";
    rows[kUncompilable].plan = CompileNothing;
    rows[kBroken].name = "broken";
    rows[kBroken].plan = FailToPlan;
    rows[kFailing].name = "failing";
    rows[kFailing].plan = PlanBy(FailToRun);
    registry_ = Registry();
    registry_.Add(testing::DoubleOp(), rows);
  }

  const Row& row(Id id) const { return registry_.rows()[static_cast<size_t>(id)]; }
  std::string Chosen(absl::string_view implementation, const Problem& problem, const char* device) {
    const auto choice = engine_->Choose(registry_.kernels()[0], implementation, device, problem);
    return choice.ok() ? choice->row->implementation.name : choice.status().ToString();
  }
  // A job for `first`, and then for the engine's choices by `implementation`; null: no others.
  std::unique_ptr<Job> MakeChosen(Call* call, Id first, const char* implementation) {
    std::unique_ptr<Job> job = MakeJob(call);
    job->row = &row(first);
    if (implementation == nullptr) return job;
    job->chooser =
        Chooser(&engine_->choices(), {&registry_.kernels()[0], implementation, "fake:0"});
    return job;
  }
};

TEST_F(PlanRefusalsTest, AJobGoesToTheFirstRowThatTakesIt) {
  Call call;
  std::unique_ptr<Job> job = MakeChosen(&call, kRefusing, "auto");
  const Problem problem = job->problem;
  Run(&call, std::move(job));
  ASSERT_TRUE(call.status.ok()) << call.status;
  EXPECT_EQ(call.output.back(), 2 * call.input.back());
  EXPECT_EQ(call.done_count, 1);
  EXPECT_EQ(g_plans_asked, 2);
  EXPECT_EQ(call.trace.row, kTwice);
  EXPECT_EQ(call.trace.auto_choice, AutoChoice::kOrder);
  // The refusal holds for this problem and device, by family or without a name.
  EXPECT_EQ(Chosen("", problem, "fake:0"), "twice");
  EXPECT_EQ(Chosen("cpu", problem, "fake:0"), "twice");
  EXPECT_EQ(Chosen("", problem, "fake:1"), "refusing");
  EXPECT_EQ(Chosen("refusing", problem, "fake:0"), "refusing");
  Problem other = problem;
  other.inputs[0].dims = other.outputs[0].dims = {7};
  EXPECT_EQ(Chosen("", other, "fake:0"), "refusing");
}

TEST_F(PlanRefusalsTest, ARowIsAskedOnce) {
  for (int i = 0; i < 5; ++i) {
    Call call;
    Run(&call, MakeChosen(&call, kRefusing, "auto"));
    EXPECT_TRUE(call.status.ok()) << call.status;
  }
  EXPECT_EQ(g_plans_asked, 2);
}

TEST_F(PlanRefusalsTest, AJobThatNamedItsRowIsRefused) {
  Call refused;
  Run(&refused, MakeChosen(&refused, kRefusing, nullptr));
  EXPECT_EQ(refused.status, absl::UnimplementedError("no way to do it"));
  Call uncompilable;
  Run(&uncompilable, MakeChosen(&uncompilable, kUncompilable, nullptr));
  EXPECT_EQ(uncompilable.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(uncompilable.status.message(), "line 7");
}

TEST_F(PlanRefusalsTest, WhoMayNotUseTheOthersIsRefused) {
  Call call;
  std::unique_ptr<Job> job = MakeJob(&call);
  job->row = &row(kRefusing);
  job->chooser =
      Chooser(&engine_->choices(), {.kernel = &registry_.kernels()[0],
                                    .implementation = "auto",
                                    .device = "fake:0",
                                    .may_use = [](const Implementation& implementation) {
                                      return std::string(implementation.name) == "refusing";
                                    }});
  Run(&call, std::move(job));
  EXPECT_EQ(call.status, absl::UnimplementedError("no way to do it"));
}

TEST_F(PlanRefusalsTest, AJobThatEveryRowRefusesEndsWithTheirReasonsAndOfNone) {
  for (const Row& row : registry_.rows())
    registry_.SetAvailability(
        row.id, row.id <= kUncompilable ? Unavailability() : Unavailability{.reason = "is away"});
  for (int i = 0; i < 2; ++i) {
    Call call;
    Run(&call, MakeChosen(&call, kRefusing, "auto"));
    EXPECT_EQ(call.status.code(), absl::StatusCode::kUnimplemented);
    for (const char* reason : {"refusing: no way to do it", "uncompilable: line 7", "is away"})
      EXPECT_NE(call.status.message().find(reason), absl::string_view::npos) << call.status;
    EXPECT_EQ(call.trace.row, -1);
  }
}

// Though the device has forgotten that it refused.
TEST_F(PlanRefusalsTest, ARowThatRefusedAJobIsNotYieldedToItAgain) {
  Chooser chooser(&engine_->choices(), {&registry_.kernels()[0], "auto", "fake:0"});
  Call call;
  const Problem problem = MakeJob(&call)->problem;
  const absl::Status refusal = absl::UnimplementedError("no way to do it");
  for (const Id next : {kUncompilable, kTwice, kBroken}) {
    const auto candidate = chooser.NextAfter(row(static_cast<Id>(next - 1)), refusal,
                                             absl::MakeConstSpan(&problem, 1));
    ASSERT_TRUE(candidate.ok()) << candidate.status();
    EXPECT_EQ(candidate->row->id, next);
  }
}

TEST_F(PlanRefusalsTest, ARowThatIsKnownToTakeTooLongIsNotGivenTheJob) {
  engine_->SetRate(kTwice, {.fixed_ns = 1000.0 * kRunNsMax, .bytes_per_ns = 1, .flops_per_ns = 1});
  Call call;
  Run(&call, MakeChosen(&call, kRefusing, "auto"));
  EXPECT_EQ(call.status.code(), absl::StatusCode::kResourceExhausted) << call.status;
  EXPECT_NE(call.status.message().find("predicted to hold its lane"), std::string::npos);
  EXPECT_EQ(RejectReasonOf(call.status), RejectReason::kRunTime);
}

TEST_F(PlanRefusalsTest, ADefectIsNoRefusal) {
  for (const Id id : {kBroken, kFailing}) {
    Call call;
    Run(&call, MakeChosen(&call, id, "auto"));
    EXPECT_EQ(call.status, absl::InternalError("a defect"));
  }
  EXPECT_EQ(g_plans_asked, 0);
}

TEST(PlanRefusalsOfADeviceTest, KnowsTheLatestThousandAndTheFirstOfEachRow) {
  Registry registry = testing::MakeRegistry();
  const Row& twice = registry.rows()[0];
  PlanRefusals refusals;
  Problem problem;
  problem.inputs.resize(1);
  const auto of_size = [&](int64_t elements) {
    problem.inputs[0].dims = {elements};
    return problem;
  };
  EXPECT_TRUE(refusals.Check(twice, of_size(0)).ok());
  EXPECT_TRUE(refusals.Add(twice, of_size(0), absl::UnimplementedError("0")));
  for (int64_t i = 1; i < 1024; ++i)
    EXPECT_FALSE(refusals.Add(twice, of_size(i), absl::UnimplementedError("more")));
  EXPECT_EQ(refusals.Check(twice, of_size(0)), absl::UnimplementedError("0"));
  EXPECT_TRUE(refusals.Check(registry.rows()[1], of_size(0)).ok());
  refusals.Add(twice, of_size(1024), absl::UnimplementedError("more"));
  EXPECT_TRUE(refusals.Check(twice, of_size(1)).ok());
  EXPECT_FALSE(refusals.Check(twice, of_size(0)).ok());
  EXPECT_TRUE(refusals.Add(registry.rows()[1], of_size(0), absl::UnimplementedError("0")));
}

}  // namespace
}  // namespace warpcall
