// The vendor's libraries as far as that goes without a GPU: loading them, remembering plans, and
// what their rows say when a library is missing.
#include "kernels/cuda/libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/lru_cache.h"
#include "kernels/gelu/gelu.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"

namespace warpcall::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNoSuchFile[] = "libwarpcall_no_such_library.so.1";

TEST(SharedLibraryTest, MissingLibraryIsNamedWithItsReason) {
  for (const absl::Status& status :
       {OpenCublasLt(kNoSuchFile).status(), OpenCudnn(kNoSuchFile).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("could not load libwarpcall_no_such_library.so.1: "),
                      HasSubstr("cannot open shared object file"), HasSubstr("need")));
  }
}

TEST(SharedLibraryTest, LibraryWithoutTheFunctionsIsRefused) {
  const absl::Status lt = OpenCublasLt("libm.so.6").status();
  EXPECT_EQ(lt.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(lt.message()), StartsWith("libm.so.6 has no function cublasLtCreate: "));
  const absl::Status dnn = OpenCudnn("libm.so.6").status();
  EXPECT_EQ(dnn.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(dnn.message()), StartsWith("libm.so.6 has no function cudnnCreate: "));
}

TEST(SharedLibraryTest, LoadingGivesTheSameEveryTime) {
  EXPECT_EQ(LoadCublasLt().status(), LoadCublasLt().status());
  EXPECT_EQ(LoadCudnn().status(), LoadCudnn().status());
  if (LoadCublasLt().ok()) {
    EXPECT_EQ(*LoadCublasLt(), *LoadCublasLt());
  }
  if (LoadCudnn().ok()) {
    EXPECT_EQ(*LoadCudnn(), *LoadCudnn());
  }
}

struct RowCase {
  const Op* op;
  Implementation row;
  const char* file;
  const char* needed_by;
  std::vector<TensorSpec> inputs;
};

std::vector<RowCase> RowCases() {
  const TensorSpec square{DataType::kFloat32, {4, 4}};
  return {{&MatmulOp(), matmul::CublasltRow(), "libcublasLt.so.13", "cublaslt", {square, square}},
          {&GeluOp(), gelu::CudnnPointwiseRow(), "libcudnn.so.9", "cudnn_pointwise", {square}},
          {&SoftmaxOp(), softmax::CudnnSoftmaxRow(), "libcudnn.so.9", "cudnn_softmax", {square}}};
}

Problem ProblemOf(const RowCase& row_case) {
  absl::StatusOr<Problem> problem = MakeProblem(*row_case.op, row_case.inputs, {});
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

// A process that may open no file has no libraries.
[[noreturn]] void PrintRefusalWithoutFiles(const RowCase& row_case) {
  const Problem problem = ProblemOf(row_case);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_NOFILE, &none);
  const absl::Status status = row_case.row.supports(problem, DeviceProperties());
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  _exit(absl::IsUnimplemented(status) ? 0 : 1);
}

TEST(LibraryRowsDeathTest, RefuseWithTheLoadersReason) {
  // A process of its own, in which nothing was loaded yet.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const RowCase& row_case : RowCases()) {
    SCOPED_TRACE(row_case.row.name);
    EXPECT_EXIT(PrintRefusalWithoutFiles(row_case), ::testing::ExitedWithCode(0),
                AllOf(HasSubstr(std::string("could not load ") + row_case.file + ": "),
                      HasSubstr("cannot open shared object file"), HasSubstr(row_case.needed_by)));
  }
}

TEST(LibraryRowsTest, LaunchWithoutPrepareSaysSo) {
  Libraries libraries;
  LaunchContext context;
  context.libraries = &libraries;
  float memory[16];
  for (const RowCase& row_case : RowCases()) {
    Operands operands;
    operands.inputs.assign(row_case.inputs.size(), memory);
    operands.outputs = {memory};
    const absl::Status status = row_case.row.launch(ProblemOf(row_case), operands, context);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(std::string(status.message()),
              std::string(row_case.row.name) + " was launched without being prepared");
  }
}

TEST(LibraryRowsTest, TensorsWithoutElementsNeedNothing) {
  for (RowCase& row_case : RowCases()) {
    SCOPED_TRACE(row_case.row.name);
    for (TensorSpec& input : row_case.inputs) input.dims = {0, 0};
    const Problem problem = ProblemOf(row_case);
    Operands operands;
    operands.inputs.assign(row_case.inputs.size(), nullptr);
    operands.outputs = {nullptr};
    Libraries libraries;
    LaunchContext context;
    context.libraries = &libraries;
    EXPECT_TRUE(row_case.row.prepare(problem, operands, &context).ok());
    EXPECT_TRUE(row_case.row.launch(problem, operands, context).ok());
    const absl::StatusOr<LaunchShape> shape = row_case.row.shape(problem, DeviceProperties());
    ASSERT_TRUE(shape.ok()) << shape.status();
    EXPECT_EQ(shape->gpu_kernels, 0);
    EXPECT_EQ(libraries.plans().size() + libraries.compiled_plans().size(), 0u);
  }
}

TEST(LibraryRowsTest, SizesBeyond32BitsAreRefusedWithValueAndLimit) {
  struct Oversized {
    const Op* op;
    Implementation row;
    std::vector<TensorSpec> inputs;
    const char* value;
    std::vector<NamedAttribute> attributes = {};
  };
  const int64_t large = int64_t{1} << 31;
  const DataType type = DataType::kFloat16;
  const std::vector<Oversized> all = {
      {&MatmulOp(), matmul::CublasltRow(), {{type, {large, 2}}, {type, {2, 3}}}, "m 2147483648"},
      {&GeluOp(),
       gelu::CudnnPointwiseRow(),
       {{type, {large}}},
       "got 2147483648",
       {{"approximate", std::string("none")}}},
      {&SoftmaxOp(), softmax::CudnnSoftmaxRow(), {{type, {large / 2, 2}}}, "got 2147483648"}};
  for (const Oversized& oversized : all) {
    const absl::StatusOr<Problem> problem =
        MakeProblem(*oversized.op, oversized.inputs, oversized.attributes);
    ASSERT_TRUE(problem.ok()) << problem.status();
    const absl::Status status = oversized.row.supports(*problem, DeviceProperties());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    // Without the library its absence is the reason.
    if (LoadCublasLt().ok() && LoadCudnn().ok()) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("2147483647"), HasSubstr(oversized.value)));
    }
  }
}

// cuDNN's softmax along an axis with a stride was off by 6e-5.
TEST(LibraryRowsTest, CudnnSoftmaxTakesNoAxisWithAStride) {
  const Implementation row = softmax::CudnnSoftmaxRow();
  DeviceProperties device;
  device.kind = DeviceKind::kCuda;
  const auto supports = [&](const Dims& dims, int64_t axis) {
    const absl::StatusOr<Problem> problem =
        MakeProblem(SoftmaxOp(), {{DataType::kFloat32, dims}}, {{"axis", axis}});
    EXPECT_TRUE(problem.ok()) << problem.status();
    return row.supports(*problem, device);
  };
  for (const auto& [dims, axis] : {std::pair(Dims{4, 6}, 0), std::pair(Dims{2, 3, 4, 5}, -3)}) {
    const absl::Status status = supports(dims, axis);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the axis has a stride of "));
  }
  // Dimensions of 1 behind the axis leave its elements side by side.
  for (const auto& [dims, axis] :
       {std::pair(Dims{4, 8}, -1), std::pair(Dims{4, 8, 1, 1}, 1), std::pair(Dims{0, 6}, 0)}) {
    EXPECT_EQ(supports(dims, axis), LoadCudnn().status());
  }
  EXPECT_THAT(row.summary, HasSubstr("rounds twice in 16 bits"));
}

TEST(LibraryRowsTest, CudnnSoftmaxTakesNoLengthForWhichAllInfinitiesAreZero) {
  const Implementation row = softmax::CudnnSoftmaxRow();
  DeviceProperties device;
  device.kind = DeviceKind::kCuda;
  const auto supports = [&](int64_t n) {
    return row.supports(*MakeProblem(SoftmaxOp(), {{DataType::kBFloat16, {5, n}}}, {}), device);
  };
  for (const int64_t n : {3, 17, 65, 127, 257, 511})
    EXPECT_THAT(std::string(supports(n).message()),
                HasSubstr(absl::StrCat("no power of two; it has ", n)));
  for (const int64_t n : {1, 2, 64, 256, 512, 513, 1000, 65537})
    EXPECT_EQ(supports(n), LoadCudnn().status()) << n;
}

// Without a GPU no handle comes about, with one each does; either way none stays in use.
TEST(CudnnHandlesTest, HandlesComeBack) {
  CudnnHandles handles;
  const bool first = handles.Acquire(nullptr).ok();
  for (size_t i = 0; i < 3 * CudnnHandles::kHandlesMax; ++i)
    EXPECT_EQ(handles.Acquire(nullptr).ok(), first);
}

TEST(LruCacheTest, ForgetsWhatWasUsedLongestAgo) {
  LruCache<int, std::string> cache(3);
  EXPECT_EQ(cache.Insert(1, "one"), std::nullopt);
  EXPECT_EQ(cache.Insert(2, "two"), std::nullopt);
  EXPECT_EQ(cache.Insert(3, "three"), std::nullopt);
  ASSERT_NE(cache.Find(1), nullptr);
  EXPECT_EQ(*cache.Find(1), "one");
  EXPECT_EQ(cache.Insert(4, "four"), "two");
  EXPECT_EQ(cache.Find(2), nullptr);
  EXPECT_EQ(*cache.Find(1), "one");
  EXPECT_EQ(*cache.Find(3), "three");
  EXPECT_EQ(*cache.Find(4), "four");
  EXPECT_EQ(cache.size(), 3u);
}

TEST(LruCacheTest, ReplacesTheValueOfAKey) {
  LruCache<int, std::string> cache(2);
  cache.Insert(1, "one");
  cache.Insert(2, "two");
  EXPECT_EQ(cache.Insert(1, "uno"), "one");
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.Insert(3, "three"), "two");
  EXPECT_EQ(*cache.Find(1), "uno");
}

// A plan that counts how many of it are alive.
struct CountedPlan {
  explicit CountedPlan(int number_in) : number(number_in) { ++alive; }
  ~CountedPlan() { --alive; }
  int number;
  static inline std::atomic<int> alive = 0;
};
using MadePlan = PlanCache::Made<CountedPlan>;

PlanKey Key(int64_t number) { return {.row = "test", .numbers = {7, number}}; }

MadePlan Make(PlanCache* cache, int64_t number, int* made) {
  return cache->GetOrMake<CountedPlan>(Key(number), [&]() -> MadePlan {
    ++*made;
    return std::make_shared<const CountedPlan>(static_cast<int>(number));
  });
}

TEST(PlanCacheTest, MakesAPlanOnceAndForgetsTheOldest) {
  PlanCache cache(2);
  int made = 0;
  for (int64_t number : {1, 2, 1, 3, 1, 2}) {
    const MadePlan plan = Make(&cache, number, &made);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->number, number);
  }
  EXPECT_EQ(made, 4);  // 2 was the oldest when 3 came
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(CountedPlan::alive, 2);
}

TEST(PlanCacheTest, ForgottenPlanLivesWhileItIsUsed) {
  int made = 0;
  MadePlan first = absl::UnknownError("none yet");
  {
    PlanCache cache(1);
    first = Make(&cache, 1, &made);
    ASSERT_TRUE(Make(&cache, 2, &made).ok());
    EXPECT_EQ(CountedPlan::alive, 2);
  }
  EXPECT_EQ(CountedPlan::alive, 1);
  EXPECT_EQ((*first)->number, 1);
}

TEST(PlanCacheTest, WhatWasPreparedIsLaunchedThoughTheCacheForgotIt) {
  PlanCache cache(1);
  int made = 0;
  LaunchContext first;
  LaunchContext second;
  ASSERT_TRUE(KeepForLaunch(Make(&cache, 1, &made), &first).ok());
  ASSERT_TRUE(KeepForLaunch(Make(&cache, 2, &made), &second).ok());
  EXPECT_EQ((*PreparedPlan<CountedPlan>(first, "row"))->number, 1);
  EXPECT_EQ((*PreparedPlan<CountedPlan>(second, "row"))->number, 2);
  EXPECT_EQ(CountedPlan::alive, 2);
  first.plan = nullptr;
  EXPECT_EQ(CountedPlan::alive, 1);
  EXPECT_EQ(PreparedPlan<CountedPlan>(first, "row").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(KeepForLaunch<CountedPlan>(absl::UnimplementedError("no"), &first).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PlanCacheTest, RemembersRefusalsButNotMishaps) {
  PlanCache cache(4);
  int asked = 0;
  const auto fail = [&](const PlanKey& key, const absl::Status& status) {
    return cache
        .GetOrMake<CountedPlan>(key,
                                [&]() -> MadePlan {
                                  ++asked;
                                  return status;
                                })
        .status();
  };
  const absl::Status refusal = absl::UnimplementedError("no algorithm");
  EXPECT_EQ(fail(Key(1), refusal), refusal);
  EXPECT_EQ(fail(Key(1), refusal), refusal);
  EXPECT_EQ(asked, 1);
  const absl::Status mishap = absl::ResourceExhaustedError("out of memory");
  EXPECT_EQ(fail(Key(2), mishap), mishap);
  EXPECT_EQ(fail(Key(2), mishap), mishap);
  EXPECT_EQ(asked, 3);
}

TEST(PlanCacheTest, ThreadsShareOnePlan) {
  PlanCache cache(4);
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const MadePlan plan = cache.GetOrMake<CountedPlan>(Key(i % 3), [&]() -> MadePlan {
          ++made;
          return std::make_shared<const CountedPlan>(i % 3);
        });
        EXPECT_EQ((*plan)->number, i % 3);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 3);
}

TEST(PlanKeyTest, RowsAndNumbersTellKeysApart) {
  const PlanKey key{.row = "a", .numbers = {1, 2}};
  EXPECT_EQ(key, (PlanKey{.row = std::string("a"), .numbers = {1, 2}}));
  EXPECT_NE(key, (PlanKey{.row = "b", .numbers = {1, 2}}));
  EXPECT_NE(key, (PlanKey{.row = "a", .numbers = {2, 1}}));
  EXPECT_NE(key, (PlanKey{.row = "a", .numbers = {1, 2, 0}}));
}

}  // namespace
}  // namespace warpcall::cuda
