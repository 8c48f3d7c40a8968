// The rows of the CPU, and rows made up to be wrong, slow or broken, on the real CPU device.
#include "server/inspect/benchmark.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cpu/reads.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "server/engine/clock.h"
#include "server/inspect/operand_sets.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/fake_device.h"

namespace warpcall::inspect {
namespace {

// Long enough that every row of these problems takes all its samples, or little more.
constexpr BenchmarkLimits kLimits = {.row_ns_max = 50'000'000, .reference_ns_max = 10'000'000'000};

// Ample limits for made-up rows, which need far less.
constexpr BenchmarkLimits kAmple = {.row_ns_max = 20'000'000'000,
                                    .reference_ns_max = 10'000'000'000};

// Rounding errors of a right result, where nothing is subnormal: half a unit in the last place.
double RoundingOf(DataType type) {
  return type == DataType::kFloat32 ? 0x1p-24 : type == DataType::kFloat16 ? 0x1p-11 : 0x1p-8;
}

constexpr double kSlowMemory = 1e8;  // bytes per second: less than any since 1995

struct Measured {
  const char* kernel;
  std::vector<Dims> shapes;
  std::vector<NamedAttribute> attributes;
};

class CatalogTest : public ::testing::TestWithParam<DataType> {
 protected:
  CatalogTest() { AddCpuKernels(&registry_); }

  BenchmarkPlan Plan(const Measured& setup) {
    BenchmarkPlan plan;
    plan.kernel = *registry_.Find(setup.kernel);
    for (const int id : plan.kernel->rows) plan.rows.push_back(&registry_.rows()[id]);
    std::vector<TensorSpec> specs;
    for (const Dims& dims : setup.shapes) specs.push_back({GetParam(), dims});
    plan.problem = *MakeProblem(*plan.kernel->op, specs, setup.attributes);
    plan.iterations = 5;
    return plan;
  }

  // Again where this machine kept a launch for so long that it was stopped, that a row was
  // predicted to take too long, or that its memory looks slow.
  absl::StatusOr<v1::BenchmarkResponse> Run(const BenchmarkPlan& plan) {
    for (int attempt = 0;; ++attempt) {
      const int64_t start_ns = MonotonicNs();
      BenchmarkSite site{&registry_, &device_};
      site.reads = cpu::ReadsOn;
      auto report = RunBenchmark(site, plan, kLimits);
      wall_ns_ = MonotonicNs() - start_ns;
      if (attempt == 20 || !report.ok() || !WasHeldUp(*report)) return report;
    }
  }
  static bool WasHeldUp(const v1::BenchmarkResponse& report) {
    return report.ceiling_bytes_per_second() < kSlowMemory ||
           absl::c_any_of(report.results(), [](const v1::BenchmarkResult& result) {
             return result.predicted_ns() > 0;
           });
  }

  Registry registry_;
  CpuDevice device_{2};
  int64_t wall_ns_ = 0;  // the last run's
};

void ExpectSensible(const v1::BenchmarkResult& result, int64_t wall_ns) {
  EXPECT_GE(result.iterations(), 1);
  EXPECT_LE(result.iterations(), 5);
  EXPECT_GE(result.launches_per_iteration(), 1);
  EXPECT_GT(result.min_ns(), 0);
  EXPECT_LE(result.min_ns(), result.median_ns());
  EXPECT_LE(result.median_ns(), result.p90_ns());
  EXPECT_LE(result.min_ns(), result.mean_ns());
  EXPECT_LE(result.p10_ns(), result.median_ns());
  EXPECT_LE(result.median_low_ns(), result.median_ns());
  EXPECT_GE(result.median_high_ns(), result.median_ns());
  // Samples are part of the time that the run took.
  EXPECT_LE(result.mean_ns() * static_cast<double>(result.iterations()) *
                static_cast<double>(result.launches_per_iteration()),
            static_cast<double>(wall_ns));
}

TEST_P(CatalogTest, EveryRowIsTimedAndRight) {
  const Measured setups[] = {{"identity", {{100, 1001}}, {}},
                             {"gelu", {{100'003}}, {}},
                             {"gelu", {{100'003}}, {{"approximate", std::string("none")}}},
                             {"softmax", {{100, 1001}}, {}},
                             {"softmax", {{7, 100, 33}}, {{"axis", int64_t{1}}}},
                             {"matmul", {{65, 100}, {100, 130}}, {}},
                             {"matmul", {{1, 600}, {600, 130}}, {}}};
  for (const Measured& setup : setups) {
    const BenchmarkPlan plan = Plan(setup);
    const auto report = Run(plan);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->ceiling_bytes_per_second(), kSlowMemory);
    const bool reads = setup.shapes[0][0] == 1;
    EXPECT_EQ(report->read_ceiling_bytes_per_second() > 0, reads);
    ASSERT_EQ(report->results_size(), static_cast<int>(plan.rows.size()));
    for (int i = 0; i < report->results_size(); ++i) {
      const v1::BenchmarkResult& result = report->results(i);
      const Implementation& row = plan.rows[static_cast<size_t>(i)]->implementation;
      SCOPED_TRACE(absl::StrCat(setup.kernel, " ", row.name));
      EXPECT_EQ(result.launch().variant(), row.name);
      if (row.family == Family::kLibrary && !result.error().empty())
        continue;  // depends on the CPU
      ASSERT_EQ(result.error(), "");
      ExpectSensible(result, wall_ns_);
      EXPECT_EQ(result.checked_elements(), plan.problem.outputs[0].elements());
      // Float32 arithmetic adds some roundings of its own; the truth has one.
      const double rounding = RoundingOf(GetParam());
      EXPECT_LE(result.relative_error(), rounding + 16 * 0x1p-24);
      EXPECT_LE(result.max_error(), 1);
      if (row.family == Family::kReference) {
        EXPECT_LE(result.relative_error(), rounding);
      }
      if (plan.kernel->op == &IdentityOp()) {
        EXPECT_EQ(result.relative_error(), 0);
      } else {
        EXPECT_GT(result.relative_error(), 0);
      }
    }
  }
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

TEST_P(CatalogTest, NothingIsTimedToo) {
  const Measured setups[] = {{"gelu", {{0, 5}}, {}},
                             {"softmax", {{3, 0}}, {}},
                             {"matmul", {{0, 5}, {5, 7}}, {}},
                             {"matmul", {{3, 0}, {0, 4}}, {}}};
  for (const Measured& setup : setups) {
    const BenchmarkPlan plan = Plan(setup);
    const auto report = Run(plan);
    ASSERT_TRUE(report.ok()) << report.status();
    for (const v1::BenchmarkResult& result : report->results()) {
      SCOPED_TRACE(absl::StrCat(setup.kernel, " ", result.launch().variant()));
      if (result.family() == "library" && !result.error().empty()) continue;
      EXPECT_EQ(result.error(), "");
      EXPECT_GE(result.min_ns(), 0);
      EXPECT_TRUE(std::isfinite(result.mean_ns()));
      EXPECT_EQ(result.relative_error(), 0);
      EXPECT_EQ(result.checked_elements(), plan.problem.outputs[0].elements());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DataTypes, CatalogTest, ::testing::ValuesIn(kDataTypes),
                         [](const auto& param_info) { return DataTypeName(param_info.param); });

// Actions of made-up rows besides copying; set by the test that runs them.
struct Script {
  absl::Mutex mutex;
  std::set<const void*> inputs ABSL_GUARDED_BY(mutex);
  std::atomic<int> launches{0};
  std::atomic<int> planned{0};
  std::atomic<bool>* lost = nullptr;
};
Script* script = nullptr;

absl::Status Copy(const Problem& problem, const Operands& operands, const LaunchContext&) {
  if (script != nullptr) {
    absl::MutexLock lock(&script->mutex);
    script->inputs.insert(operands.inputs[0]);
    ++script->launches;
  }
  std::memcpy(operands.outputs[0], operands.inputs[0], problem.inputs[0].bytes());
  return absl::OkStatus();
}

Implementation MadeUp(const char* name, LaunchFunction launch) {
  return {.name = name,
          .family = Family::kManual,  // not one that CopyCeiling would take
          .device_kind = DeviceKind::kCpu,
          .summary = "made up",
          .data_types = {DataType::kFloat32},
          .supports = SupportsAll,
          .plan = PlanBy(launch)};
}

class MadeUpRowsTest : public ::testing::Test {
 protected:
  MadeUpRowsTest() { script = &script_; }
  ~MadeUpRowsTest() override { script = nullptr; }

  absl::StatusOr<v1::BenchmarkResponse> RunRows(const std::vector<Implementation>& rows,
                                                Device* device,
                                                const BenchmarkLimits& limits = kLimits) {
    registry_.Add(IdentityOp(), rows);
    BenchmarkPlan plan;
    plan.kernel = *registry_.Find("identity");
    for (const int id : plan.kernel->rows) plan.rows.push_back(&registry_.rows()[id]);
    plan.problem = *MakeProblem(IdentityOp(), {{DataType::kFloat32, {kElements}}}, {});
    plan.iterations = iterations_;
    return RunBenchmark({&registry_, device}, plan, limits);
  }

  std::vector<v1::BenchmarkResult> Results(const std::vector<Implementation>& rows,
                                           const BenchmarkLimits& limits = kAmple) {
    auto report = RunRows(rows, &device_, limits);
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return {};
    return {report->results().begin(), report->results().end()};
  }

  static constexpr int64_t kElements = 10'000;
  int iterations_ = 5;
  Script script_;
  Registry registry_;
  CpuDevice device_{2};
};

TEST_F(MadeUpRowsTest, ThePlantedErrorIsFound) {
  const std::vector<v1::BenchmarkResult> results =
      Results({MadeUp("right", Copy),
               MadeUp("doubled",
                      [](const Problem&, const Operands& operands, const LaunchContext&) {
                        for (int64_t i = 0; i < kElements; ++i)
                          static_cast<float*>(operands.outputs[0])[i] =
                              2 * static_cast<const float*>(operands.inputs[0])[i];
                        return absl::OkStatus();
                      }),
               MadeUp("a thousandth more",
                      [](const Problem&, const Operands& operands, const LaunchContext&) {
                        for (int64_t i = 0; i < kElements; ++i)
                          static_cast<float*>(operands.outputs[0])[i] =
                              1.001f * static_cast<const float*>(operands.inputs[0])[i];
                        return absl::OkStatus();
                      })});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].relative_error(), 0);
  EXPECT_EQ(results[1].relative_error(), 1);
  EXPECT_NEAR(results[2].relative_error(), 1e-3, 1e-6);
  EXPECT_EQ(results[0].max_error(), 0);
  EXPECT_GT(results[2].max_error(), 1000);
  for (const v1::BenchmarkResult& result : results) EXPECT_EQ(result.checked_elements(), kElements);
}

// Each is checked on poisoned outputs of its own: the row before leaves nothing behind.
TEST_F(MadeUpRowsTest, ARowThatWritesNotEverythingIsSeen) {
  const std::vector<v1::BenchmarkResult> results = Results(
      {MadeUp("right", Copy),
       MadeUp("nothing", [](const Problem&, const Operands&,
                            const LaunchContext&) { return absl::OkStatus(); }),
       MadeUp(
           "all but the last", [](const Problem&, const Operands& operands, const LaunchContext&) {
             std::memcpy(operands.outputs[0], operands.inputs[0], (kElements - 1) * sizeof(float));
             return absl::OkStatus();
           })});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].relative_error(), 0);
  EXPECT_EQ(results[1].max_error(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(results[1].relative_error()));
  EXPECT_TRUE(std::isnan(results[2].relative_error()));
}

TEST_F(MadeUpRowsTest, AFailureIsTheRowsOwn) {
  Implementation refusing = MadeUp("refusing", Copy);
  refusing.supports = [](const Problem&, const DeviceProperties&) {
    return absl::UnimplementedError("not today");
  };
  Implementation huge = MadeUp("huge", Copy);
  huge.plan = PlanBy(Copy, [](const Problem&, const DeviceProperties&) { return size_t{1} << 60; });
  const Implementation failing =
      MadeUp("failing", [](const Problem&, const Operands&, const LaunchContext&) -> absl::Status {
        return absl::InternalError("broken");
      });
  const Implementation failing_later = MadeUp(
      "failing later", [](const Problem&, const Operands& operands, const LaunchContext& context) {
        static std::atomic<int> launches{0};
        if (++launches > 3) return absl::InternalError("worn out");
        return Copy(*MakeProblem(IdentityOp(), {{DataType::kFloat32, {kElements}}}, {}), operands,
                    context);
      });
  const std::vector<v1::BenchmarkResult> results =
      Results({refusing, huge, failing, failing_later, MadeUp("right", Copy)});
  ASSERT_EQ(results.size(), 5u);
  EXPECT_EQ(results[0].error(), "not today");
  EXPECT_NE(results[1].error(), "");
  EXPECT_EQ(results[2].error(), "broken");
  EXPECT_EQ(results[3].error(), "worn out");
  EXPECT_EQ(results[4].error(), "");
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i].iterations(), 0) << i;
    EXPECT_EQ(results[i].mean_ns(), 0) << i;
    EXPECT_EQ(results[i].verdict(), "") << i;
  }
  EXPECT_EQ(results[4].iterations(), 5);
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

TEST_F(MadeUpRowsTest, RowsShareTheLargestWorkspace) {
  const auto touch = [](const Problem& problem, const Operands& operands,
                        const LaunchContext& context) {
    std::memset(context.workspace, 1, 1 << 20);
    return Copy(problem, operands, context);
  };
  Implementation small = MadeUp("small", touch);
  Implementation large = MadeUp("large", touch);
  small.plan =
      PlanBy(touch, [](const Problem&, const DeviceProperties&) { return size_t{1} << 20; });
  large.plan =
      PlanBy(touch, [](const Problem&, const DeviceProperties&) { return size_t{2} << 20; });
  for (const v1::BenchmarkResult& result : Results({small, large, MadeUp("none", Copy)}))
    EXPECT_EQ(result.error(), "");
}

TEST_F(MadeUpRowsTest, TimeEndsASlowRowWithTheSamplesItHas) {
  const Implementation slow = MadeUp(
      "slow", [](const Problem& problem, const Operands& operands, const LaunchContext& context) {
        const int64_t end_ns = MonotonicNs() + 10'000'000;
        while (MonotonicNs() < end_ns) {
        }
        return Copy(problem, operands, context);
      });
  iterations_ = 1000;
  const std::vector<v1::BenchmarkResult> some =
      Results({slow}, {.row_ns_max = 100'000'000, .reference_ns_max = 10'000'000});
  ASSERT_EQ(some.size(), 1u);
  EXPECT_GE(some[0].iterations(), 1);
  EXPECT_LE(some[0].iterations(), 10);
  EXPECT_EQ(some[0].launches_per_iteration(), 1);
  EXPECT_GE(some[0].min_ns(), 10e6);
}

TEST_F(MadeUpRowsTest, WithoutTimeTheCheckedLaunchIsTheSample) {
  const std::vector<v1::BenchmarkResult> results =
      Results({MadeUp("right", Copy)}, {.row_ns_max = 0, .reference_ns_max = 0});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].iterations(), 1);
  EXPECT_EQ(results[0].launches_per_iteration(), 1);
  EXPECT_EQ(script_.launches, 1);
  EXPECT_EQ(results[0].relative_error(), 0);
  EXPECT_GT(results[0].checked_elements(), 0);
}

TEST_F(MadeUpRowsTest, LaunchesOfOnePlanTakeTurnsAtAllSets) {
  Implementation row = MadeUp("right", Copy);
  row.plan = [](const Problem& made_for, const PlanContext& context) {
    ++script->planned;
    return PlanBy(Copy)(made_for, context);
  };
  const Problem problem = *MakeProblem(IdentityOp(), {{DataType::kFloat32, {kElements}}}, {});
  const int64_t sets = SetsFor(OperandLayout(problem).bytes, device_.properties());
  ASSERT_GT(sets, 1);
  iterations_ = static_cast<int>(sets);  // one launch each on a slow machine
  const std::vector<v1::BenchmarkResult> results = Results({row});
  absl::MutexLock lock(&script_.mutex);
  EXPECT_EQ(static_cast<int64_t>(script_.inputs.size()), sets);
  EXPECT_EQ(script_.planned, 1);
}

TEST_F(MadeUpRowsTest, PlansOutOfRangeAreRefused) {
  registry_.Add(IdentityOp(), {MadeUp("right", Copy)});
  BenchmarkPlan plan;
  plan.kernel = *registry_.Find("identity");
  plan.problem = *MakeProblem(IdentityOp(), {{DataType::kFloat32, {1}}}, {});
  plan.iterations = 0;
  EXPECT_EQ(RunBenchmark({&registry_, &device_}, plan, kLimits).status(),
            absl::InvalidArgumentError("iterations is 0; it must be 1 or more"));
  plan.iterations = 1;
  plan.warmup_iterations = -1;
  EXPECT_EQ(RunBenchmark({&registry_, &device_}, plan, kLimits).status(),
            absl::InvalidArgumentError("warmup_iterations is -1; it must be 0 or more"));
}

TEST_F(MadeUpRowsTest, ALostDeviceEndsTheRun) {
  testing::FakeDevice::Control control;
  testing::FakeDevice device(&control, "fake:0");
  script_.lost = &control.lost;
  const auto report =
      RunRows({MadeUp("fatal",
                      [](const Problem&, const Operands&, const LaunchContext&) -> absl::Status {
                        *script->lost = true;
                        return absl::UnavailableError("the device was lost");
                      }),
               MadeUp("right", Copy)},
              &device);
  EXPECT_EQ(report.status(), absl::UnavailableError("the device was lost"));
  EXPECT_EQ(script_.launches, 0);
  EXPECT_EQ(control.memory_used_bytes, 0);
}

TEST_F(MadeUpRowsTest, WithoutMemoryForTheOperandsTheRunFails) {
  testing::FakeDevice::Control control;
  control.memory_limit_bytes = 1000;
  testing::FakeDevice device(&control, "fake:0");
  EXPECT_EQ(RunRows({MadeUp("right", Copy)}, &device).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(BenchmarkBytesTest, BoundsWhatSetsTake) {
  const auto bytes = [](int64_t elements) {
    return BenchmarkBytes(*MakeProblem(IdentityOp(), {{DataType::kFloat32, {elements}}}, {}));
  };
  EXPECT_EQ(bytes(0), 0);
  EXPECT_EQ(bytes(64), 512 * kSetsMax);
  EXPECT_EQ(bytes(int64_t{1} << 26), kSetsBytesMax);
  EXPECT_EQ(bytes(int64_t{1} << 30), int64_t{8} << 30);
  EXPECT_EQ(bytes(int64_t{1} << 60), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace warpcall::inspect
