#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cpu/reads.h"
#include "kernels/identity/identity.h"
#include "kernels/matmul/matmul.h"
#include "server/inspect/benchmark.h"
#include "server/inspect/flops_ceiling.h"
#include "server/inspect/memory_ceiling.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/inspect/timed_device.h"

namespace warpcall::inspect {
namespace {

Problem VectorTimesMatrix(int64_t side) {
  return *MakeProblem(MatmulOp(),
                      {{DataType::kFloat32, {1, side}}, {DataType::kFloat32, {side, side}}}, {});
}

class CeilingsTest : public ::testing::Test {
 protected:
  CeilingsTest() {
    AddCpuKernels(&registry_);
    stream_ = *device_.CreateStream();
  }

  FastestRows::Site Site() { return {&registry_, &device_.properties(), stream_.get(), &pool_}; }
  // With a clock so slow that no launch is stopped where others keep the processor busy.
  FastestRows::Site PatientSite() {
    FastestRows::Site site = Site();
    site.clock = [] { return MonotonicNs() / 64; };
    return site;
  }

  Registry registry_;
  cpu::ThreadPool pool_{2};
  CpuDevice device_{2};
  std::unique_ptr<Stream> stream_;
};

TEST_F(CeilingsTest, CopiesArePlausible) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{64} << 10, int64_t{16} << 20}) {
    const double least = bytes == 1 ? 1e6 : 1e8;
    double bytes_per_second = 0;
    // Again where others kept the processor busy all the while.
    for (int attempt = 0; attempt < 40 && bytes_per_second <= least; ++attempt) {
      const auto ceiling = MemoryCeiling::OfCopies(PatientSite(), bytes);
      ASSERT_TRUE(ceiling.ok()) << ceiling.status();
      for (int i = 0; i < 5; ++i) ASSERT_TRUE((*ceiling)->Sample().ok());
      EXPECT_EQ((*ceiling)->samples(), 5);
      EXPECT_GT((*ceiling)->spent_ns(), 0);
      bytes_per_second = (*ceiling)->bytes_per_second();
    }
    std::printf("copies of %lld bytes: %.1f GB/s\n", static_cast<long long>(bytes),
                bytes_per_second * 1e-9);
    EXPECT_GT(bytes_per_second, least);
    EXPECT_LT(bytes_per_second, 1e13);
  }
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

TEST_F(CeilingsTest, ReadsArePlausible) {
  for (const int64_t side : {20, 300, 2000}) {
    const Problem problem = VectorTimesMatrix(side);
    auto sets = OperandSets::Create({.problem = &problem, .sets = 2}, device_.properties(),
                                    stream_.get(), &pool_);
    ASSERT_TRUE(sets.ok()) << sets.status();
    const auto ceiling =
        MemoryCeiling::OfReads(cpu::ReadsOn, device_.properties(), problem,
                               {stream_.get(), &*sets, [] { return MonotonicNs() / 64; }});
    ASSERT_TRUE(ceiling.ok()) << ceiling.status();
    EXPECT_EQ((*ceiling)->bytes_per_second(), 0);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*ceiling)->Sample().ok());
    EXPECT_EQ((*ceiling)->samples(), 5);
    EXPECT_GT((*ceiling)->spent_ns(), 0);
    std::printf("reads of a matrix with a side of %d: %.1f GB/s\n", static_cast<int>(side),
                (*ceiling)->bytes_per_second() * 1e-9);
    EXPECT_GT((*ceiling)->bytes_per_second(), 1e6);
    EXPECT_LT((*ceiling)->bytes_per_second(), 1e13);
  }
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

TEST_F(CeilingsTest, ArithmeticIsPlausibleInEveryType) {
  for (const Arithmetic arithmetic :
       {Arithmetic::kFloat32, Arithmetic::kTf32, Arithmetic::kBFloat16, Arithmetic::kFloat16}) {
    const auto ceiling = FlopsCeiling::Create(PatientSite(), arithmetic, nullptr);
    ASSERT_TRUE(ceiling.ok()) << ceiling.status();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*ceiling)->Sample().ok());
    EXPECT_EQ((*ceiling)->samples(), 5);
    EXPECT_GT((*ceiling)->spent_ns(), 0);
    std::printf("%s: %.1f GFLOP/s\n", ArithmeticName(arithmetic),
                (*ceiling)->flops_per_second() * 1e-9);
    EXPECT_GT((*ceiling)->flops_per_second(), 1e8);
    EXPECT_LT((*ceiling)->flops_per_second(), 1e14);
  }
  EXPECT_EQ(device_.memory_usage().used_bytes, 0);
}

// The ceiling is at least the speed of a row of the same type at a problem of its own. Compares the
// best of several, since other work on the machine only slows them, long ones more.
TEST_F(CeilingsTest, NoFastRowIsMuchFasterThanArithmeticsCeiling) {
  constexpr double kSide = 512;
  const TensorSpec matrix = {DataType::kBFloat16, {512, 512}};
  double achieved = 0;
  double ceiling_flops = 0;
  for (int attempt = 0; attempt < 40; ++attempt) {
    const auto ceiling = FlopsCeiling::Create(Site(), Arithmetic::kBFloat16, nullptr);
    const auto rows = FastestRows::Create(Site(), {"matmul", {matrix, matrix}}, 1);
    if (absl::IsDeadlineExceeded(ceiling.status()) || absl::IsDeadlineExceeded(rows.status()))
      continue;
    ASSERT_TRUE(ceiling.ok() && rows.ok()) << ceiling.status() << rows.status();
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE((*ceiling)->Sample().ok());
      ASSERT_TRUE((*rows)->Sample().ok());
    }
    ceiling_flops = std::max(ceiling_flops, (*ceiling)->flops_per_second());
    achieved = std::max(achieved, 2 * kSide * kSide * kSide * 1e9 / (*rows)->launch_ns());
    if (attempt >= 5 && achieved < 2 * ceiling_flops) break;
  }
  EXPECT_LT(achieved, 2 * ceiling_flops);
}

TEST_F(CeilingsTest, NeedTheirKernels) {
  registry_ = Registry();
  EXPECT_EQ(MemoryCeiling::OfCopies(Site(), 64).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(FlopsCeiling::Create(Site(), Arithmetic::kBFloat16, nullptr).status().code(),
            absl::StatusCode::kNotFound);
}

// A GPU with no code but its own multiply-adds: 4 MFLOP in 2 us.
class DevicesOwnMultiplyAddsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLaunchNs = 2000;
  static constexpr int64_t kFlops = 4'000'000;

  DevicesOwnMultiplyAddsTest() { stream_ = *device_.CreateStream(); }

  FastestRows::Site Site() {
    return {&registry_, &device_.properties(), stream_.get(), &pool_,
            [this] { return device_.now_ns(); }};
  }
  MultiplyAddsSource Source() {
    return [this](Arithmetic arithmetic, const DeviceProperties& device) {
      EXPECT_EQ(device.name, device_.properties().name);
      asked_.push_back(arithmetic);
      return MultiplyAdds{
          NewPlan({},
                  [](const Operands& operands, const LaunchContext& context) {
                    EXPECT_TRUE(operands.inputs.empty());
                    static_cast<testing::TimedDevice*>(context.stream)->Pass(kLaunchNs);
                    return absl::OkStatus();
                  }),
          kFlops};
    };
  }

  Registry registry_;
  cpu::ThreadPool pool_{1};
  testing::TimedDevice device_{DeviceKind::kCuda};
  std::unique_ptr<Stream> stream_;
  std::vector<Arithmetic> asked_;
};

TEST_F(DevicesOwnMultiplyAddsTest, AreTheCeilingOnAGpuInEveryArithmetic) {
  const std::vector<Arithmetic> all = {Arithmetic::kFloat32, Arithmetic::kTf32,
                                       Arithmetic::kBFloat16, Arithmetic::kFloat16};
  for (const Arithmetic arithmetic : all) {
    const auto ceiling = FlopsCeiling::Create(Site(), arithmetic, Source());
    ASSERT_TRUE(ceiling.ok()) << ceiling.status();
    EXPECT_EQ((*ceiling)->flops_per_second(), 0);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*ceiling)->Sample().ok());
    EXPECT_DOUBLE_EQ((*ceiling)->flops_per_second(), 2e12);
    EXPECT_EQ((*ceiling)->samples(), 3);
    EXPECT_EQ((*ceiling)->spent_ns(), 3 * kLaunchNs);
  }
  EXPECT_EQ(asked_, all);
}

// Rows, of which this registry has none, replace missing code, but not failures.
TEST_F(DevicesOwnMultiplyAddsTest, AreMissedWhereThereAreNone) {
  const auto code_with = [this](const MultiplyAddsSource& source) {
    return FlopsCeiling::Create(Site(), Arithmetic::kTf32, source).status().code();
  };
  EXPECT_EQ(code_with(nullptr), absl::StatusCode::kNotFound);
  EXPECT_EQ(code_with([](Arithmetic, const DeviceProperties&) {
              return absl::UnimplementedError("none here");
            }),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(code_with([](Arithmetic, const DeviceProperties&) {
              return absl::UnavailableError("the device is gone");
            }),
            absl::StatusCode::kUnavailable);
}

TEST_F(DevicesOwnMultiplyAddsTest, AreSampledBesideTheRowsOfAProductWhichRest) {
  constexpr int64_t kRowNs = 50'000;
  const Implementation row = {
      .name = "made_up",
      .family = Family::kManual,
      .device_kind = DeviceKind::kCuda,
      .summary = "takes its time",
      .data_types = {DataType::kFloat32},
      .supports = SupportsAll,
      .plan = PlanBy([](const Problem&, const Operands&, const LaunchContext& context) {
        static_cast<testing::TimedDevice*>(context.stream)->Pass(kRowNs);
        return absl::OkStatus();
      })};
  registry_.Add(MatmulOp(), {row});
  const TensorSpec matrix = {DataType::kFloat32, {64, 64}};
  BenchmarkPlan plan;
  plan.kernel = *registry_.Find("matmul");
  plan.rows = {&registry_.rows()[0]};
  plan.problem = *MakeProblem(MatmulOp(), {matrix, matrix}, {{"precision", std::string("tf32")}});
  plan.iterations = 10;
  BenchmarkSite site{&registry_, &device_};
  site.multiply_adds = Source();
  site.clock = [this] { return device_.now_ns(); };
  int64_t rested_ns = 0;
  site.sleep = [&](int64_t ns) {
    device_.Pass(ns);
    rested_ns += ns;
  };
  const absl::StatusOr<v1::BenchmarkResponse> report = RunBenchmark(site, plan, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GE(rested_ns, plan.iterations * kRowNs);  // each sample, of a launch or more
  EXPECT_EQ(asked_, std::vector<Arithmetic>{Arithmetic::kTf32});
  EXPECT_DOUBLE_EQ(report->flops_ceiling(), 2e12);
}

// A row of 50 us, copies of 2 ns a byte and reads of 1 ns a byte, on a device of each kind.
class ReadCeilingTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  Implementation Row(const char* name, Family family, int64_t launch_ns) {
    return {.name = name,
            .family = family,
            .device_kind = GetParam(),
            .summary = "takes its time",
            .data_types = {DataType::kFloat32},
            .supports = SupportsAll,
            .plan = [launch_ns](const Problem& problem, const PlanContext&) {
              const auto bytes = static_cast<int64_t>(problem.inputs[0].bytes());
              return absl::StatusOr<PlanPtr>(PassingPlan(launch_ns > 0 ? launch_ns : 4 * bytes));
            }};
  }
  static PlanPtr PassingPlan(int64_t ns) {
    return NewPlan({}, [ns](const Operands&, const LaunchContext& context) {
      static_cast<testing::TimedDevice*>(context.stream)->Pass(ns);
      return absl::OkStatus();
    });
  }
  ReadsSource Source() {
    return [this](int64_t bytes, const DeviceProperties& device) -> absl::StatusOr<PlanPtr> {
      EXPECT_EQ(device.name, device_.properties().name);
      read_.push_back(bytes);
      return PassingPlan(bytes);
    };
  }
  v1::BenchmarkResponse Run(const Problem& problem, const ReadsSource& source) {
    Registry registry;
    registry.Add(IdentityOp(), {Row("copy", Family::kCuda, 0)});
    registry.Add(MatmulOp(), {Row("row", Family::kManual, 50'000)});
    BenchmarkPlan plan;
    plan.kernel = *registry.Find("matmul");
    plan.rows = {&registry.rows()[1]};
    plan.problem = problem;
    plan.iterations = 10;
    BenchmarkSite site{&registry, &device_};
    site.reads = source;
    site.clock = [this] { return device_.now_ns(); };
    site.sleep = [this](int64_t ns) { device_.Pass(ns); };
    site.tell = [this](const v1::BenchmarkResponse& news) { told_.push_back(news); };
    const absl::StatusOr<v1::BenchmarkResponse> report = RunBenchmark(site, plan, {});
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : v1::BenchmarkResponse();
  }

  testing::TimedDevice device_{DeviceProperties{
      .name = "timed:0", .kind = GetParam(), .memory_bytes = int64_t{1} << 30}};
  std::vector<int64_t> read_;
  std::vector<v1::BenchmarkResponse> told_;
};

TEST_P(ReadCeilingTest, IsTheCeilingOfAProblemThatReads) {
  const Problem problem = VectorTimesMatrix(256);
  const v1::BenchmarkResponse report = Run(problem, Source());
  EXPECT_EQ(read_, std::vector<int64_t>{OperandLayout(problem).bytes});
  EXPECT_NEAR(report.ceiling_bytes_per_second(), 5e8, 5e5);
  EXPECT_DOUBLE_EQ(report.read_ceiling_bytes_per_second(), 1e9);
  const v1::BenchmarkResult& result = report.results(0);
  EXPECT_GT(result.bytes_per_second(), 0);
  EXPECT_DOUBLE_EQ(result.fraction_of_ceiling(), result.bytes_per_second() / 1e9);
  ASSERT_FALSE(told_.empty());
  EXPECT_DOUBLE_EQ(told_.back().read_ceiling_bytes_per_second(), 1e9);
}

TEST_P(ReadCeilingTest, IsNotMeasuredOfAProblemThatWrites) {
  const TensorSpec matrix = {DataType::kFloat32, {64, 64}};
  const v1::BenchmarkResponse report =
      Run(*MakeProblem(MatmulOp(), {matrix, matrix}, {}), Source());
  EXPECT_TRUE(read_.empty());
  EXPECT_EQ(report.read_ceiling_bytes_per_second(), 0);
  const v1::BenchmarkResult& result = report.results(0);
  EXPECT_DOUBLE_EQ(result.fraction_of_ceiling(),
                   result.bytes_per_second() / report.ceiling_bytes_per_second());
}

TEST_P(ReadCeilingTest, IsACopyWhereNothingReads) {
  const auto none = [](int64_t, const DeviceProperties&) -> absl::StatusOr<PlanPtr> {
    return absl::UnimplementedError("none here");
  };
  for (const ReadsSource& source : {ReadsSource(nullptr), ReadsSource(none)}) {
    const v1::BenchmarkResponse report = Run(VectorTimesMatrix(256), source);
    EXPECT_EQ(report.read_ceiling_bytes_per_second(), 0);
    const v1::BenchmarkResult& result = report.results(0);
    EXPECT_DOUBLE_EQ(result.fraction_of_ceiling(),
                     result.bytes_per_second() / report.ceiling_bytes_per_second());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ReadCeilingTest,
                         ::testing::Values(DeviceKind::kCpu, DeviceKind::kCuda),
                         [](const auto& info) { return DeviceKindName(info.param); });

TEST(ReadsAlmostOnlyTest, WhereLessThanASixteenthIsOutput) {
  const auto product = [](int64_t m, int64_t k, int64_t n) {
    return ReadsAlmostOnly(*MakeProblem(
        MatmulOp(), {{DataType::kBFloat16, {m, k}}, {DataType::kBFloat16, {k, n}}}, {}));
  };
  EXPECT_TRUE(product(1, 8192, 8192));
  EXPECT_TRUE(product(1, 17, 1));  // 1 of 35 elements
  EXPECT_TRUE(product(1, 8, 1));   // 1 of 17
  EXPECT_FALSE(product(1, 7, 1));  // 1 of 15
  EXPECT_FALSE(product(64, 64, 64));
  EXPECT_FALSE(product(0, 64, 64));  // no input 0, where a set begins
  EXPECT_FALSE(product(1, 0, 64));
  EXPECT_FALSE(ReadsAlmostOnly(*MakeProblem(IdentityOp(), {{DataType::kFloat32, {4096}}}, {})));
}

TEST(ArithmeticOfTest, IsThatOfTheOperandsUnlessPrecisionSaysTf32) {
  Registry registry;
  AddCpuKernels(&registry);
  const auto of = [&](const char* kernel, DataType type,
                      const std::vector<NamedAttribute>& attributes) {
    const Op& op = *(*registry.Find(kernel))->op;
    std::vector<TensorSpec> inputs(op.input_names.size(), TensorSpec{type, {8, 8}});
    if (inputs.size() == 3) inputs[2].dims = {8};
    return ArithmeticOf(op, *MakeProblem(op, inputs, attributes));
  };
  const NamedAttribute ieee = {"precision", std::string("ieee")};
  const NamedAttribute tf32 = {"precision", std::string("tf32")};
  EXPECT_EQ(of("matmul", DataType::kFloat32, {}), Arithmetic::kFloat32);
  EXPECT_EQ(of("matmul", DataType::kFloat32, {ieee}), Arithmetic::kFloat32);
  EXPECT_EQ(of("matmul", DataType::kFloat32, {tf32}), Arithmetic::kTf32);
  EXPECT_EQ(of("linear", DataType::kFloat32, {tf32}), Arithmetic::kTf32);
  EXPECT_EQ(of("matmul", DataType::kFloat16, {}), Arithmetic::kFloat16);
  EXPECT_EQ(of("matmul", DataType::kBFloat16, {}), Arithmetic::kBFloat16);
  EXPECT_EQ(of("gelu", DataType::kFloat32, {}), Arithmetic::kFloat32);
}

TEST(ArithmeticMayBoundTest, OnlyWhereEachByteIsUsedOften) {
  constexpr int64_t kBytes = 3 * 64 * 64 * 2;
  EXPECT_TRUE(ArithmeticMayBound({.bytes = kBytes, .flops = 2 * 64 * 64 * 64}));
  EXPECT_FALSE(ArithmeticMayBound({.bytes = kBytes, .flops = 8 * kBytes}));
  EXPECT_FALSE(ArithmeticMayBound({.bytes = kBytes, .flops = 0}));
}

TEST(CopiesPassCachesTest, KnowsSmallOnes) {
  DeviceProperties gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.l2_bytes = int64_t{50} << 20;
  gpu.memory_bytes = int64_t{140} << 30;
  EXPECT_FALSE(CopiesPassCaches(4096, gpu));
  EXPECT_FALSE(CopiesPassCaches(int64_t{1} << 20, gpu));  // 64 sets of it
  EXPECT_TRUE(CopiesPassCaches(int64_t{16} << 20, gpu));
  EXPECT_TRUE(CopiesPassCaches(int64_t{1} << 34, gpu));
  EXPECT_TRUE(CopiesPassCaches(0, gpu));
}

}  // namespace
}  // namespace warpcall::inspect
