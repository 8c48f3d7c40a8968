// Opens NVIDIA's compiler, where there is one, and compiles with it.
#include "kernels/compiled/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiled/program.h"

namespace warpcall::compiled {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kScale[] = R"(
extern "C" __global__ void scale(const float* x, float* y, float a) {
  y[threadIdx.x] = a * x[threadIdx.x];
})";

const std::vector<std::string> kOptions = {"--gpu-architecture=sm_90a"};

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LoadNvrtc().ok()) GTEST_SKIP() << LoadNvrtc().status();
  }
};

TEST(NvrtcMissingTest, IsSaidWithTheFileAndTheReason) {
  const absl::Status none = Nvrtc::Open({"libno_such_nvrtc.so.1", "libno_other.so.1"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(none.message()),
              AllOf(StartsWith("could not load libno_such_nvrtc.so.1: "),
                    HasSubstr("cannot open shared object file"), HasSubstr("family compiled")));
  const absl::Status strange = Nvrtc::Open({"libm.so.6"}).status();
  EXPECT_EQ(strange.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(strange.message()),
              StartsWith("libm.so.6 has no function nvrtcVersion: "));
}

TEST_F(NvrtcTest, MakesCodeForADeviceOrSaysWhatItKnows) {
  const Nvrtc& nvrtc = **LoadNvrtc();
  EXPECT_EQ(nvrtc.TargetOf(80).value(), "sm_80");
  EXPECT_EQ(nvrtc.TargetOf(90).value(), "sm_90a");
  const absl::Status unknown = nvrtc.CheckTarget(35);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr(nvrtc.version()), HasSubstr("sm_90"), HasSubstr("the GPU is sm_35")));
  const std::string cubin = nvrtc.Compile({kScale, kOptions}).value().cubin;
  EXPECT_TRUE(absl::StartsWith(cubin, "\177ELF"));
  EXPECT_NE(cubin.find(".text.scale"), std::string::npos);
}

TEST_F(NvrtcTest, ReportsWhatIsWrongWithASource) {
  const Nvrtc& nvrtc = **LoadNvrtc();
  const absl::Status wrong = nvrtc.Compile({"__global__ void f() { x = 1; }", kOptions}).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(IsCompileError(wrong));
  EXPECT_THAT(std::string(wrong.message()),
              StartsWith("program.cu(1): error: identifier \"x\" is undefined\n"));
  std::string many = "__global__ void f() {";
  for (int i = 0; i < 90; ++i)
    absl::StrAppend(&many, "\nname_", i, std::string(1000, '_'), " = 1;");
  const absl::Status long_log = nvrtc.Compile({many + "}", kOptions}).status();
  EXPECT_THAT(std::string(long_log.message()), HasSubstr(" bytes more)"));
  EXPECT_LT(long_log.message().size(), Nvrtc::kLogBytesMax + 200);
  const absl::Status unknown = nvrtc.Compile({kScale, {"--gpu-architecture=sm_1"}}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr(nvrtc.version()), HasSubstr("--gpu-architecture=sm_1")));
}

TEST_F(NvrtcTest, FindsKernelsByTheirNamesInCpp) {
  const CudaCode code = (*LoadNvrtc())
                            ->Compile({.text = absl::StrCat(kScale, R"(
namespace mine {
template <typename T>
__global__ void shift(T* y) { int unused; y[threadIdx.x] += 1; }
}  // namespace mine
__global__ void twice(float* y) { *y *= 2; }
)"),
                                       .options = kOptions,
                                       .file = "mine.cu",
                                       .entries = {"twice", "mine::shift<float>", "scale"},
                                       .with_ptx = true})
                            .value();
  EXPECT_EQ(code.kernels,
            (std::vector<std::string>{"_Z5twicePf", "_ZN4mine5shiftIfEEvPT_", "scale"}));
  for (const std::string& kernel : code.kernels) {
    EXPECT_NE(code.cubin.find(".text." + kernel), std::string::npos) << kernel;
    EXPECT_THAT(code.ptx, HasSubstr(absl::StrCat(".entry ", kernel, "(")));
  }
  EXPECT_EQ(code.ptx.find('\0'), std::string::npos);
  EXPECT_THAT(code.log, StartsWith("mine.cu(7): warning"));
  const CudaCode plain = (*LoadNvrtc())->Compile({kScale, kOptions}).value();
  EXPECT_EQ(plain.log, "");
  EXPECT_EQ(plain.ptx, "");
  EXPECT_TRUE(plain.kernels.empty());
}

TEST_F(NvrtcTest, SeveralThreadsMayCompileAtOnce) {
  std::vector<std::string> cubins(4);
  std::vector<std::thread> threads;
  for (std::string& cubin : cubins)
    threads.emplace_back([&] {
      cubin = (*LoadNvrtc())->Compile({kScale, kOptions}).value().cubin;
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& cubin : cubins) EXPECT_TRUE(absl::StartsWith(cubin, "\177ELF"));
}

}  // namespace
}  // namespace warpcall::compiled
