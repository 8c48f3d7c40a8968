#include "server/inspect/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "server/inspect/fill.h"
#include "server/inspect/profile_rows.h"
#include "server/inspect/profile_runner.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/fake_device.h"

namespace warpcall::inspect {
namespace {

using nlohmann::json;

DeviceActivity KernelRun(const char* name, int64_t start_ns, int64_t end_ns) {
  DeviceActivity kernel;
  kernel.name = name;
  kernel.start_ns = start_ns;
  kernel.end_ns = end_ns;
  kernel.registers_per_thread = 32;
  kernel.shared_memory_bytes = 1024;
  kernel.grid[0] = 132;
  kernel.grid[1] = kernel.grid[2] = 1;
  kernel.block[0] = 256;
  kernel.block[1] = kernel.block[2] = 1;
  return kernel;
}

DeviceActivity CopyRun(int64_t start_ns, int64_t end_ns, int64_t bytes) {
  DeviceActivity copy;
  copy.kind = DeviceActivity::Kind::kCopy;
  copy.name = "copy to device";
  copy.start_ns = start_ns;
  copy.end_ns = end_ns;
  copy.bytes = bytes;
  copy.stream = 7;
  return copy;
}

// Two runs: copy, gap of 50, kernel, and the second one's kernel starts while its copy still runs.
Watched TwoRuns() {
  Watched watched;
  watched.runs = {{1, 1000, 10, 2000}, {2, 3000, 20, 4000}};
  watched.activities = {CopyRun(1100, 1200, 64), KernelRun("k", 1250, 1350),
                        CopyRun(3100, 3200, 64), KernelRun("k", 3150, 3450)};
  watched.phases = {{"job", 1, 0, 1010, 1900}, {"job", 2, 0, 3020, 3900}};
  watched.counters = {{"k", 0.75, 0.5, 0.25}, {"k", 0.25, 0.5, 0.75}};
  return watched;
}

const v1::ProfileRow& RowNamed(const ProfileRows& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const v1::ProfileRow& row) { return row.name() == name; });
  EXPECT_NE(found, rows.end()) << name;
  return *found;
}

TEST(ProfileRowsTest, AddsUpWhatIsAlike) {
  const ProfileRows rows = RowsOf(TwoRuns());
  const v1::ProfileRow& kernel = RowNamed(rows, "k");
  EXPECT_EQ(kernel.calls(), 2);
  EXPECT_EQ(kernel.total_ns(), 400);
  EXPECT_EQ(kernel.grid(), "132x1x1");
  EXPECT_EQ(kernel.block(), "256x1x1");
  EXPECT_EQ(kernel.registers_per_thread(), 32);
  EXPECT_EQ(kernel.shared_memory_bytes(), 1024);
  const v1::ProfileRow& copy = RowNamed(rows, "copy to device");
  EXPECT_EQ(copy.kind(), kCopyRow);
  EXPECT_EQ(copy.calls(), 2);
  EXPECT_EQ(copy.bytes(), 128);
  EXPECT_EQ(copy.grid(), "");
  EXPECT_EQ(RowNamed(rows, "queue").total_ns(), 30);
  EXPECT_EQ(RowNamed(rows, "job").total_ns(), 1770);
  EXPECT_EQ(RowNamed(rows, "run").total_ns(), 2000);
}

TEST(ProfileRowsTest, ThreadsAndCountersAreRowsOfTheirOwn) {
  Watched watched = TwoRuns();
  watched.host.threads = {{1500, 30}, {500, 20}};
  watched.host.counts = {{"page faults", 7, 0}, {"cache misses", 3, 192}};
  const ProfileRows rows = RowsOf(watched);
  const v1::ProfileRow& thread = RowNamed(rows, "cpu thread 1");
  EXPECT_EQ(thread.kind(), kThreadRow);
  EXPECT_EQ(thread.calls(), 2);
  EXPECT_EQ(thread.total_ns(), 500);
  EXPECT_DOUBLE_EQ(thread.fraction(), 0.25);  // both runs take 2000
  EXPECT_EQ(RowNamed(rows, "cpu thread 0").total_ns(), 1500);
  EXPECT_EQ(RowNamed(rows, "waiting for a core").total_ns(), 50);
  const v1::ProfileRow& misses = RowNamed(rows, "cache misses");
  EXPECT_EQ(misses.kind(), kCounterRow);
  EXPECT_EQ(misses.calls(), 3);
  EXPECT_EQ(misses.bytes(), 192);
  EXPECT_EQ(misses.total_ns(), 0);
  // The device's rows stay as they are without threads and counters.
  EXPECT_DOUBLE_EQ(RowNamed(rows, "k").fraction(), 400.0 / 600);
}

TEST(ProfileRowsTest, ThreadsThatNeverWaitedHaveNoRowOfIt) {
  Watched watched = TwoRuns();
  watched.host.threads = {{1500, 0}};
  for (const v1::ProfileRow& row : RowsOf(watched)) EXPECT_NE(row.name(), "waiting for a core");
}

// Two threads were ready to run for 100 ns; other work had `others_ns` of them.
std::string WhenOthersHad(int64_t others_ns) {
  Watched watched;
  watched.runs = {{.submitted_ns = 0, .done_ns = 60}};
  watched.host.threads = {{.running_ns = 60 - others_ns}, {.running_ns = 40}};
  watched.others_ns = others_ns;
  return WhyInconclusive(watched);
}

TEST(ProfileRowsTest, AQuarterOfTheThreadsTimeIsWhatOthersMayHave) {
  EXPECT_EQ(WhenOthersHad(0), "");
  EXPECT_EQ(WhenOthersHad(25), "");
  EXPECT_EQ(WhenOthersHad(26), "other work took 26 % of the threads' time");
  EXPECT_EQ(WhenOthersHad(60), "other work took 60 % of the threads' time");
}

// The host's threads only start the work of a GPU's runs.
TEST(ProfileRowsTest, OfAGpusRunsOthersMayHaveAQuarterToo) {
  Watched watched;
  watched.runs = {{.submitted_ns = 0, .done_ns = 60}, {.submitted_ns = 100, .done_ns = 140}};
  watched.others_ns = 25;
  EXPECT_EQ(WhyInconclusive(watched), "");
  watched.others_ns = 26;
  EXPECT_EQ(WhyInconclusive(watched), "other work took 26 % of the threads' time");
  watched.others_ns = 1000;  // several threads waited
  EXPECT_EQ(WhyInconclusive(watched), "other work took 100 % of the threads' time");
  EXPECT_EQ(WhyInconclusive({}), "");
}

TEST(ProfileRowsTest, MeasuresGapsWithinARunAndSharesOfItsTime) {
  const ProfileRows rows = RowsOf(TwoRuns());
  const v1::ProfileRow& gap = RowNamed(rows, "nothing to do");
  EXPECT_EQ(gap.kind(), kGapRow);
  EXPECT_EQ(gap.calls(), 1);
  EXPECT_EQ(gap.total_ns(), 50);
  // 1100 to 1350 and 3100 to 3450.
  EXPECT_DOUBLE_EQ(gap.fraction(), 50.0 / 600);
  EXPECT_DOUBLE_EQ(RowNamed(rows, "k").fraction(), 400.0 / 600);
  EXPECT_EQ(RowNamed(rows, "job").fraction(), 0);
}

TEST(ProfileRowsTest, AveragesCountersOverAKernelsCalls) {
  const ProfileRows rows = RowsOf(TwoRuns());
  EXPECT_DOUBLE_EQ(RowNamed(rows, "k").achieved_occupancy(), 0.5);
  EXPECT_DOUBLE_EQ(RowNamed(rows, "k").dram_throughput(), 0.5);
  EXPECT_EQ(RowNamed(rows, "copy to device").achieved_occupancy(), -1);
}

TEST(ProfileRowsTest, PutsTheLongestFirst) {
  const ProfileRows rows = RowsOf(TwoRuns());
  for (int i = 1; i < rows.size(); ++i) EXPECT_GE(rows[i - 1].total_ns(), rows[i].total_ns());
}

TEST(ProfileRowsTest, TellsLaunchesOfDifferentGridsApart) {
  Watched watched = TwoRuns();
  watched.activities[3].grid[0] = 1;
  int kernels = 0;
  for (const v1::ProfileRow& row : RowsOf(watched)) kernels += row.name() == "k";
  EXPECT_EQ(kernels, 2);
}

TEST(ProfileRowsTest, WhatPassedNoQueueHasNone) {
  Watched watched = TwoRuns();
  for (ProfiledRun& run : watched.runs) run.queue_ns = -1;
  for (const v1::ProfileRow& row : RowsOf(watched)) EXPECT_NE(row.name(), "queue");
  const json trace = json::parse(ChromeTrace(watched, {"cuda:0", "gelu", "vector", "", ""}));
  for (const json& event : trace["traceEvents"]) EXPECT_NE(event["name"], "queue");
}

TEST(ProfileRowsTest, NothingWatchedGivesNoDeviceRows) {
  Watched watched;
  watched.runs = {{1, 0, 5, 10}};
  const ProfileRows rows = RowsOf(watched);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name(), "run");
  EXPECT_EQ(rows[1].name(), "queue");
}

TEST(ChromeTraceTest, IsJsonWithAnEventForEachThing) {
  Watched watched = TwoRuns();
  watched.activities[1].name = "void k<\"x\">(\\)\xff";
  const json trace =
      json::parse(ChromeTrace(watched, {"cuda:0", "gelu", "vector", "id \"1\"", "00-ab-cd-01"}));
  EXPECT_EQ(trace["otherData"]["request_id"], "id \"1\"");
  EXPECT_EQ(trace["otherData"]["traceparent"], "00-ab-cd-01");
  std::map<int, int> ranges;
  std::map<std::string, int> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      ++ranges[event["pid"].get<int>()];
      EXPECT_GE(event["ts"].get<double>(), 0);
      EXPECT_GE(event["dur"].get<double>(), 0);
    } else {
      EXPECT_EQ(event["ph"], "M");
      ++names[event["args"]["name"].get<std::string>()];
    }
  }
  EXPECT_EQ(ranges[1], 6);  // two requests, two waits, two jobs
  EXPECT_EQ(ranges[2], 4);
  EXPECT_EQ(names["cuda:0"], 1);
  EXPECT_EQ(names["stream 7"], 1);
  EXPECT_EQ(names["lane 0"], 1);
}

TEST(ChromeTraceTest, CountsMicrosecondsFromTheFirstRun) {
  const json trace = json::parse(ChromeTrace(TwoRuns(), {"cuda:0", "gelu", "vector", "", ""}));
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] != "copy to device" || event["ts"] > 1) continue;
    EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 0.1);
    EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 0.1);
    return;
  }
  ADD_FAILURE() << "the first copy is missing";
}

class RunProfileTest : public ::testing::Test {
 protected:
  RunProfileTest() { AddCpuKernels(&registry_); }

  absl::StatusOr<v1::ProfileResponse> Profile(const std::string& implementation, int iterations,
                                              int64_t runs_ns_max = 600'000'000'000) {
    const Kernel* const kernel = *registry_.Find("softmax");
    const std::vector<TensorSpec> inputs = {{DataType::kFloat32, {64, 1000}}};
    ProfilePlan plan;
    plan.kernel = kernel;
    plan.problem = *MakeProblem(*kernel->op, inputs, {});
    auto device = std::make_unique<CpuDevice>(2);
    plan.row = *registry_.Select(*kernel, implementation, plan.problem, device->properties());
    std::minstd_rand random(1);
    std::vector<float> values(64'000);
    for (float& value : values) value = std::normal_distribution<float>()(random);
    const char* const bytes = reinterpret_cast<const char*>(values.data());
    plan.inputs = {{absl::MakeConstSpan(bytes, 100'001),
                    absl::MakeConstSpan(bytes + 100'001, 4 * 64'000 - 100'001)}};
    plan.iterations = iterations;
    plan.runs_ns_max = runs_ns_max;
    plan.trace = true;
    return RunProfile(registry_, std::move(device), plan);
  }

  Registry registry_;
};

TEST_F(RunProfileTest, TheCpusOperationsAreItsLaunches) {
  for (const char* const implementation : {"cpu", "manual", "reference", "library"}) {
    SCOPED_TRACE(implementation);
    const absl::StatusOr<v1::ProfileResponse> report = Profile(implementation, 4);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->iterations(), 4);
    int64_t kernel_ns = 0;
    int64_t enqueue_ns = 0;
    for (const v1::ProfileRow& row : report->rows()) {
      if (row.kind() == kCounterRow || row.kind() == kGapRow) continue;
      EXPECT_EQ(row.calls(), 4) << row.name();
      if (row.kind() == kKernelRow) {
        kernel_ns += row.total_ns();
        EXPECT_GT(row.fraction(), 0);
        EXPECT_EQ(row.achieved_occupancy(), -1);
      }
      if (row.name() == "enqueue") enqueue_ns = row.total_ns();
    }
    EXPECT_GT(kernel_ns, 0);
    EXPECT_LE(kernel_ns, enqueue_ns);
    EXPECT_NE(report->counters_unavailable(), "");
  }
}

TEST_F(RunProfileTest, TellsWhatTheCpusThreadsDid) {
  const absl::StatusOr<v1::ProfileResponse> report = Profile("manual", 4);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(RowNamed(report->rows(), "cpu thread 0").kind(), kThreadRow);
  int64_t worked_ns = 0;
  bool counted = false;
  for (const v1::ProfileRow& row : report->rows()) {
    if (row.kind() == kThreadRow && row.name() != kWaitingRow) worked_ns += row.total_ns();
    counted = counted || row.name() == "instructions";
  }
  EXPECT_GT(worked_ns, 0);
  EXPECT_EQ(RowNamed(report->rows(), "page faults").kind(), kCounterRow);
  // Hardware counters are there, or the reason is.
  const bool is_missing = report->counters_unavailable().find("instructions") != std::string::npos;
  EXPECT_EQ(counted, !is_missing) << report->counters_unavailable();
}

TEST_F(RunProfileTest, EndsWhenItsTimeIsUp) {
  const absl::StatusOr<v1::ProfileResponse> report = Profile("cpu", 1000, /*runs_ns_max=*/0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->iterations(), 1);
  EXPECT_EQ(RowNamed(report->rows(), "run").calls(), 1);
}

TEST_F(RunProfileTest, TheTraceHoldsEachRunsPhasesInsideItsRequest) {
  const absl::StatusOr<v1::ProfileResponse> report = Profile("cpu", 3);
  ASSERT_TRUE(report.ok()) << report.status();
  const json trace = json::parse(report->trace_json());
  std::map<int, std::pair<double, double>> requests;
  std::map<std::string, int> phases;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["name"] == "request softmax")
      requests[event["args"]["run"].get<int>()] = {
          event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>()};
  ASSERT_EQ(requests.size(), 3u);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["pid"] != 1 || !event["args"].contains("run")) continue;
    const auto [start, end] = requests.at(event["args"]["run"].get<int>());
    const double from = event["ts"].get<double>();
    EXPECT_GE(from, start - 0.001) << event;
    EXPECT_LE(from + event["dur"].get<double>(), end + 0.002) << event;
    ++phases[event["name"].get<std::string>()];
  }
  for (const char* const phase : {"queue", "job", "copy_in", "enqueue", "wait"})
    EXPECT_EQ(phases[phase], 3) << phase;
}

// Runs of Profile with memory in rounds and
// copies: a request in pieces, a kernel whole.

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

// As in the server: a request copies neither it nor what a run before it copied.
TEST_F(ProfileRunnerTest, WhatStaysIsCopiedOnce) {
  Implementation row = {};
  row.name = "copies";
  row.data_types = {DataType::kFloat32};
  row.supports = SupportsAll;
  row.plan = PlanBy([](const Problem& problem, const Operands& operands, const LaunchContext&) {
    std::copy_n(static_cast<const char*>(operands.inputs[0]), problem.inputs[0].bytes(),
                static_cast<char*>(operands.outputs[0]));
    return absl::OkStatus();
  });
  registry_.Add(IdentityOp(), {row});
  plan_.kernel = &registry_.kernels()[0];  // they may have moved
  plan_.row = &registry_.rows()[0];
  control_.round_bytes = 0;
  Rows();
  const int sent = control_.copies;
  const size_t runs = launched.size();
  launched.clear();
  plan_.stays = {true};
  const ProfileRows rows = Rows();
  EXPECT_EQ(CallsOf(rows, kRow), plan_.iterations);
  EXPECT_EQ(launched.size(), runs);
  for (const std::vector<float>& input : launched) EXPECT_TRUE(input == Input());
  // One to put the input, and an output's for each run.
  EXPECT_EQ(sent, 2 * static_cast<int>(runs));
  EXPECT_EQ(control_.copies - sent, 1 + static_cast<int>(runs));
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
