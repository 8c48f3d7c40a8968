// The vendor's libraries without a GPU: loading them, remembering plans, and their rows' errors
// when a library is missing.
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
#include "kernels/norm/norm.h"
#include "kernels/plan.h"
#include "kernels/rmsnorm/rmsnorm.h"
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
  const TensorSpec weight{DataType::kFloat32, {4}};
  return {{&MatmulOp(), matmul::CublasltRow(), "libcublasLt.so.13", "cublaslt", {square, square}},
          {&GeluOp(), gelu::CudnnPointwiseRow(), "libcudnn.so.9", "cudnn_pointwise", {square}},
          {&SoftmaxOp(), softmax::CudnnSoftmaxRow(), "libcudnn.so.9", "cudnn_softmax", {square}},
          {&RmsnormOp(), norm::CudnnNormRow(), "libcudnn.so.9", "cudnn_norm", {square, weight}}};
}

Problem CaseProblem(const RowCase& row_case) {
  absl::StatusOr<Problem> problem = MakeProblem(*row_case.op, row_case.inputs, {});
  EXPECT_TRUE(problem.ok()) << problem.status();
  return *std::move(problem);
}

// A process that may open no file has no libraries.
[[noreturn]] void PrintRefusalWithoutFiles(const RowCase& row_case) {
  const Problem problem = CaseProblem(row_case);
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

TEST(LibraryRowsTest, TensorsWithoutElementsNeedNothing) {
  for (RowCase& row_case : RowCases()) {
    SCOPED_TRACE(row_case.row.name);
    for (TensorSpec& input : row_case.inputs) input.dims.assign(input.dims.size(), 0);
    const Problem problem = CaseProblem(row_case);
    Operands operands;
    operands.inputs.assign(row_case.inputs.size(), nullptr);
    operands.outputs = {nullptr};
    Libraries libraries;
    const absl::StatusOr<PlanPtr> plan = row_case.row.plan(problem, {.libraries = &libraries});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE((*plan)->Enqueue(operands, {}).ok());
    ASSERT_TRUE((*plan)->shape().ok()) << (*plan)->shape().status();
    EXPECT_EQ((*plan)->shape()->gpu_kernels, 0);
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
      {&SoftmaxOp(), softmax::CudnnSoftmaxRow(), {{type, {large / 2, 2}}}, "got 2147483648"},
      {&RmsnormOp(),
       norm::CudnnNormRow(),
       {{type, {large / 2, 2}}, {type, {2}}},
       "got 2147483648"}};
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
                HasSubstr(absl::StrCat("not a power of two; the length is ", n)));
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

}  // namespace
}  // namespace warpcall::cuda
