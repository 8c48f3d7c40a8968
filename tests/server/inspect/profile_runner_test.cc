// Runs of Profile with memory in rounds and
// copies: a request in pieces, a kernel whole.
#include "server/inspect/profile_runner.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"
#include "kernels/plan.h"
#include "server/inspect/fill.h"
#include "server/inspect/profile.h"
#include "tests/server/fake_device.h"

namespace warpcall::inspect {
namespace {

using testing::FakeDevice;

constexpr int64_t kElements = 100'000;
constexpr int kRounds = 8;
constexpr uint64_t kSeed = 11;
constexpr char kRow[] = "notes_what_it_sees";

// Each launch's input.
std::vector<std::vector<float>> launched;
int planned = 0;

absl::Status Note(const Problem& problem, const Operands& operands, const LaunchContext&) {
  const auto* const x = static_cast<const float*>(operands.inputs[0]);
  launched.emplace_back(x, x + problem.inputs[0].elements());
  return absl::OkStatus();
}

absl::StatusOr<PlanPtr> CountPlan(const Problem&, const PlanContext&) {
  ++planned;
  return PlanNothing();
}

class ProfileRunnerTest : public ::testing::Test {
 protected:
  ProfileRunnerTest() {
    launched.clear();
    planned = 0;
    Add(PlanBy(Note));
    control_.round_bytes = 2 * kElements * sizeof(float) / kRounds;
    plan_.problem = *MakeProblem(GeluOp(), {{DataType::kFloat32, {kElements}}}, {});
    plan_.seed = kSeed;
    plan_.iterations = 4;
  }

  void Add(decltype(Implementation::plan) plan) {
    registry_ = Registry();
    Implementation row = {};
    row.name = kRow;
    row.data_types = {DataType::kFloat32};
    row.supports = SupportsAll;
    row.plan = std::move(plan);
    registry_.Add(GeluOp(), {row});
    plan_.kernel = &registry_.kernels()[0];
    plan_.row = &registry_.rows()[0];
  }

  ProfileRows Rows() {
    absl::StatusOr<v1::ProfileResponse> report =
        RunProfile(registry_, std::make_unique<FakeDevice>(&control_, "fake"), plan_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->rows() : ProfileRows();
  }

  static int64_t CallsOf(const ProfileRows& rows, const std::string& name) {
    int64_t calls = 0;
    for (const v1::ProfileRow& row : rows) calls += row.name() == name ? row.calls() : 0;
    return calls;
  }

  static std::vector<float> Input() {
    cpu::ThreadPool pool(1);
    std::vector<float> values(kElements);
    Fill({DataType::kFloat32, {kElements}}, NormalSequence(kSeed, 0), pool, values.data());
    return values;
  }

  FakeDevice::Control control_;
  Registry registry_;
  ProfilePlan plan_;
};

TEST_F(ProfileRunnerTest, AKernelRunsWholeAndWithoutCopies) {
  plan_.request_path = false;
  const ProfileRows rows = Rows();
  EXPECT_EQ(CallsOf(rows, kRow), plan_.iterations);
  EXPECT_EQ(CallsOf(rows, "enqueue"), plan_.iterations);
  EXPECT_EQ(CallsOf(rows, "wait"), plan_.iterations);
  for (const char* const phase : {"queue", "copy_in", "place"}) EXPECT_EQ(CallsOf(rows, phase), 0);
  ASSERT_GT(launched.size(), static_cast<size_t>(plan_.iterations));
  for (const std::vector<float>& input : launched) EXPECT_TRUE(input == Input());
  EXPECT_EQ(control_.memory_used_bytes, 0);
}

TEST_F(ProfileRunnerTest, ARequestRunsInRoundsBetweenCopies) {
  const ProfileRows rows = Rows();
  EXPECT_EQ(CallsOf(rows, kRow), kRounds * plan_.iterations);
  for (const char* const phase : {"queue", "copy_in", "place"})
    EXPECT_EQ(CallsOf(rows, phase), plan_.iterations) << phase;
  std::vector<float> last;
  for (auto part = launched.end() - kRounds; part != launched.end(); ++part)
    last.insert(last.end(), part->begin(), part->end());
  EXPECT_TRUE(last == Input());
  EXPECT_EQ(control_.memory_used_bytes, 0);
}

TEST_F(ProfileRunnerTest, AKernelIsPlannedOnce) {
  plan_.request_path = false;
  Add(CountPlan);
  EXPECT_EQ(CallsOf(Rows(), kRow), plan_.iterations);
  EXPECT_EQ(planned, 1);
}

}  // namespace
}  // namespace warpcall::inspect
