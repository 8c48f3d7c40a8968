// The kernels of client/examples/push by their manifests: read as a server does, and run on the
// CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/check/compare.h"
#include "kernels/gelu/gelu.h"
#include "kernels/manifest/kernel_manifest.h"
#include "proto/common/manifest_comment.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/dispatch.h"
#include "tests/kernels/host_kernels.h"
#include "tests/kernels/manifest_gpu.h"
#include "tests/kernels/rows.h"
#include "tests/kernels/seed.h"

namespace warpcall::testing {
namespace {

using manifest::KernelManifest;

constexpr const char* kRight[] = {"gelu", "gelu_vectorised", "softmax_online", "matmul_tiled"};
constexpr const char* kAll[] = {"gelu",         "gelu_vectorised", "softmax_online",
                                "matmul_tiled", "gelu_naive",      "softmax_overflow"};
// Larger problems are left out but for single rows and, in Fill::kPatterns, every bit pattern of 16
// bits: threads that take turns need 1 us for an element.
constexpr int64_t kElementsMax = 10000;
constexpr int64_t kRowElementsMax = 100003;

const Op* FindExampleOp(absl::string_view name) {
  for (const Op* op : {&GeluOp(), &MatmulOp(), &SoftmaxOp()})
    if (name == op->name) return op;
  return nullptr;
}

struct Example {
  std::string source;
  KernelManifest manifest;
};

Example Read(const std::string& name) {
  std::ifstream file(absl::StrCat(WARPCALL_SOURCE_DIR, "/client/examples/push/", name, ".cu"));
  std::stringstream text;
  text << file.rdbuf();
  Example example{.source = text.str(), .manifest = {}};
  const absl::StatusOr<std::string> json = FindManifest(example.source);
  EXPECT_TRUE(json.ok()) << name << ": " << json.status();
  if (!json.ok()) return example;
  absl::StatusOr<KernelManifest> read = manifest::ReadKernelManifest(*json, FindExampleOp);
  EXPECT_TRUE(read.ok()) << name << ": " << read.status();
  if (read.ok()) example.manifest = *std::move(read);
  return example;
}

TEST(PushExamplesTest, TheirManifestsLaunchThemOnTheirExamples) {
  for (const char* const name : kAll) {
    const KernelManifest manifest = Read(name).manifest;
    ASSERT_NE(manifest.op, nullptr);
    EXPECT_EQ(absl::StrReplaceAll(manifest.name, {{"-", "_"}}), name);
    EXPECT_FALSE(manifest.finite_inputs) << name;
    EXPECT_FALSE(manifest.examples.empty()) << name;
    for (const DataType type : manifest.types)
      for (const std::vector<Dims>& shapes : manifest.examples) {
        std::vector<TensorSpec> inputs;
        for (const Dims& dims : shapes) inputs.push_back({type, dims});
        const Problem problem = *MakeProblem(*manifest.op, inputs, AttributesOf(manifest));
        EXPECT_TRUE(CheckTaken(manifest, problem, testing::ManifestGpu()).ok()) << name;
        const auto launches = LaunchesFor(manifest, problem, testing::ManifestGpu());
        EXPECT_TRUE(launches.ok()) << name << ": " << launches.status();
      }
  }
}

// A kernel in one type, compiled for the host.
struct Compiled {
  std::string name;
  const KernelManifest* manifest;
  DataType type;
  int number;
};

class PushExamplesRunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    host_ = new HostKernels;
    compiled_ = new std::vector<Compiled>;
    for (const char* const name : kAll) {
      const auto* const example = new Example(Read(name));
      for (const DataType type : example->manifest.types)
        compiled_->push_back(
            {name, &example->manifest, type,
             host_->Add(example->source, example->manifest.entries[0].name, type)});
    }
    has_compiler_ = host_->Compile();
  }

  void SetUp() override {
    if (!has_compiler_) GTEST_SKIP() << "there is no c++, or a tool runs";
  }

  static std::vector<Compiled> CompiledOf(const std::string& name) {
    std::vector<Compiled> found;
    absl::c_copy_if(*compiled_, std::back_inserter(found),
                    [&](const Compiled& each) { return each.name == name; });
    return found;
  }

  struct Run {
    std::vector<Memory> inputs;
    std::unique_ptr<Memory> output;
    Disagreement found;
  };

  // Compares the kernel's output with the op's definition.
  static Run RunOn(const Compiled& kernel, const Problem& problem, const Case& of) {
    Run run;
    for (size_t i = 0; i < problem.inputs.size(); ++i)
      run.inputs.push_back(
          FilledInput(problem.inputs[i], of.FillOf(i), absl::StrCat(of.name, " ", i)));
    run.output = std::make_unique<Memory>(problem.outputs[0].bytes());
    run.output->Poison(0x42);
    Operands operands = OperandsOf(run.inputs);
    operands.outputs = {run.output->data()};
    const auto launches = LaunchesFor(*kernel.manifest, problem, testing::ManifestGpu());
    EXPECT_TRUE(launches.ok()) << launches.status();
    if (!launches.ok()) return run;
    EXPECT_TRUE(host_->Launch(kernel.number, launches->launches[0], operands))
        << "the parameters' sizes are not those of " << kernel.name;
    EXPECT_TRUE(run.output->CheckBands("the output").ok());
    const Truth truth = TruthFor(*kernel.manifest->op, problem, run.inputs);
    run.found = Compare(truth, run.output->data());
    return run;
  }

  // Calls `check` with each of the op's own cases that is a problem with the manifest's attributes.
  template <typename Check>
  static int ForEachCase(const Compiled& kernel, const Check& check) {
    std::set<std::pair<std::vector<Dims>, Fill>> seen;
    for (const Case& of : kernel.manifest->op->cases().cases) {
      std::vector<TensorSpec> inputs;
      for (const Dims& dims : of.shapes) inputs.push_back({kernel.type, dims});
      const absl::StatusOr<Problem> problem =
          MakeProblem(*kernel.manifest->op, inputs, AttributesOf(*kernel.manifest));
      if (!problem.ok() || !CheckTaken(*kernel.manifest, *problem, testing::ManifestGpu()).ok())
        continue;
      const bool is_row = of.shapes[0].size() == 1;
      if (problem->outputs[0].elements() > (is_row ? kRowElementsMax : kElementsMax) &&
          of.fill != Fill::kPatterns)
        continue;
      if (!seen.insert({of.shapes, of.fill}).second) continue;
      SCOPED_TRACE(absl::StrCat(kernel.name, " ", DataTypeName(kernel.type), ", ", of.name));
      check(of, RunOn(kernel, *problem, of));
      if (::testing::Test::HasFailure()) break;
    }
    return static_cast<int>(seen.size());
  }

  static HostKernels* host_;
  static std::vector<Compiled>* compiled_;
  static bool has_compiler_;
};
HostKernels* PushExamplesRunTest::host_ = nullptr;
std::vector<Compiled>* PushExamplesRunTest::compiled_ = nullptr;
bool PushExamplesRunTest::has_compiler_ = false;

TEST_F(PushExamplesRunTest, RightOnesMeetTheDefinitionOnTheOpsCases) {
  for (const char* const name : kRight)
    for (const Compiled& kernel : CompiledOf(name)) {
      const int count = ForEachCase(kernel, [](const Case&, const Run& run) {
        EXPECT_EQ(run.found.wrong, 0) << run.found.text;
      });
      EXPECT_GT(count, 20) << name;
    }
}

TEST_F(PushExamplesRunTest, TheNaiveGeluIsWrongForNegativeInfinityAlone) {
  for (const Compiled& kernel : CompiledOf("gelu_naive")) {
    int64_t wrong = 0;
    ForEachCase(kernel, [&](const Case&, const Run& run) {
      wrong += run.found.wrong;
      DispatchDataType(kernel.type, [&]<typename T>(T) {
        const T* const x = static_cast<const T*>(run.inputs[0].data());
        const T* const y = static_cast<const T*>(run.output->data());
        int64_t infinities = 0;
        for (size_t i = 0; i < run.inputs[0].bytes() / sizeof(T); ++i)
          if (ToFloat(x[i]) == -INFINITY) {
            ++infinities;
            EXPECT_TRUE(std::isnan(ToFloat(y[i])));
          }
        EXPECT_EQ(run.found.wrong, infinities) << run.found.text;
      });
    });
    EXPECT_GT(wrong, 0) << DataTypeName(kernel.type);
  }
}

TEST_F(PushExamplesRunTest, TheSoftmaxWithoutAMaximumIsRightForSmallInputsAlone) {
  for (const Compiled& kernel : CompiledOf("softmax_overflow")) {
    int64_t wrong = 0;
    ForEachCase(kernel, [&](const Case& of, const Run& run) {
      if (of.fill == Fill::kNormal) {
        EXPECT_EQ(run.found.wrong, 0) << run.found.text;
      }
      if (of.fill == Fill::kWide) wrong += run.found.wrong;
    });
    EXPECT_GT(wrong, 0) << DataTypeName(kernel.type);
  }
}

}  // namespace
}  // namespace warpcall::testing
