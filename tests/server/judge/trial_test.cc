#include "server/judge/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/registry.h"
#include "kernels/softmax/softmax.h"
#include "proto/common/half.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cpu/cpu_device.h"
#include "server/runtime/plan_site.h"
#include "tests/server/judge/host_code.h"

namespace warpcall::judge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kRows = 7, kColumns = 37;
constexpr size_t kElements = kRows * kColumns;

// A kernel on a GPU gets such pointers.
struct Call {
  const float* x;
  const float* b;
  float* y;
  float* scratch;
};
using KernelFunction = std::function<void(const Call&)>;

void SoftmaxRows(const float* x, float* y) {
  for (int64_t i = 0; i < kRows; ++i) SoftmaxRow(x + i * kColumns, y + i * kColumns, kColumns);
}

// The CPU, which guards memory by a page that nobody may touch.
class GuardedDevice final : public Device {
 public:
  static constexpr size_t kPage = 4096;

  // Where the last memory ends.
  const char* end() const { return end_; }

  const DeviceProperties& properties() const override { return cpu_.properties(); }
  bool healthy() const override { return cpu_.healthy(); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override { return cpu_.CreateStream(); }
  absl::StatusOr<Buffer> AllocateStaging(size_t bytes) override {
    return cpu_.AllocateStaging(bytes);
  }
  absl::StatusOr<Buffer> AllocateGuarded(size_t bytes) override {
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    void* const data =
        mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return absl::ResourceExhaustedError("mmap");
    end_ = static_cast<char*>(data) + size;
    mprotect(static_cast<char*>(data) + size, kPage, PROT_NONE);
    return Buffer(
        data, size, [](void*, void* pages, size_t mapped) { munmap(pages, mapped + kPage); },
        nullptr);
  }
  bool KernelsUseStaging(size_t, bool) const override { return true; }
  size_t round_bytes() const override { return 0; }
  MemoryUsage memory_usage() const override { return {}; }

 private:
  CpuDevice cpu_{1};
  const char* end_ = nullptr;
};

class TrialTest : public ::testing::Test {
 protected:
  TrialTest() {
    stream_ = *device_.CreateStream();
    EXPECT_TRUE(stream_->BindThread().ok());
    kernel_.op = &SoftmaxOp();
    kernel_.problem = &softmax_;
  }

  TrialResult Try(const KernelFunction& kernel) {
    kernel_.plan = NewPlan({.workspace_bytes = scratch_bytes_}, [&](const Operands& operands,
                                                                    const LaunchContext& context) {
      kernel({static_cast<const float*>(operands.inputs[0]),
              static_cast<const float*>(operands.inputs.back()),
              static_cast<float*>(operands.outputs[0]), static_cast<float*>(context.workspace)});
      return status_;
    });
    Trial trial({on_, stream_.get(), &pool_, secret_}, kernel_);
    absl::StatusOr<TrialResult> result = trial.Run();
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : TrialResult();
  }
  // Whatever the secret is.
  void ExpectFound(Finding finding, const std::function<KernelFunction()>& make) {
    for (secret_ = 1; secret_ <= 20; ++secret_) {
      const TrialResult result = Try(make());
      EXPECT_EQ(result.finding, finding)
          << FindingName(result.finding) << ": " << result.detail << ", secret " << secret_;
    }
  }
  void ExpectFound(Finding finding, const KernelFunction& kernel) {
    ExpectFound(finding, [&] { return kernel; });
  }

  CpuDevice device_{1};
  GuardedDevice guarded_;
  Device* on_ = &device_;
  cpu::ThreadPool pool_{1};
  std::unique_ptr<Stream> stream_;
  const Problem softmax_ = *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {kRows, kColumns}}}, {});
  TrialKernel kernel_;
  size_t scratch_bytes_ = 0;
  uint64_t secret_ = 1;
  absl::Status status_;
};

TEST_F(TrialTest, AnHonestKernelPasses) {
  ExpectFound(Finding::kPassed, [](const Call& call) { SoftmaxRows(call.x, call.y); });
  const TrialResult result = Try([](const Call& call) { SoftmaxRows(call.x, call.y); });
  EXPECT_EQ(result.detail, "");
  EXPECT_FALSE(result.first.has_value());
  EXPECT_EQ(result.checked_elements, 18 * static_cast<int64_t>(kElements));
  EXPECT_GT(result.max_error, 0);
  EXPECT_LE(result.max_error, 1);
  EXPECT_GT(result.max_relative_error, 0);
  EXPECT_EQ(result.histogram[0], 0);
  EXPECT_EQ(std::accumulate(result.histogram.begin(), result.histogram.end(), int64_t{0}),
            result.checked_elements);
  EXPECT_LT(result.histogram.back(), result.checked_elements);
}

TEST_F(TrialTest, WorkThatIsNotDoneIsFound) {
  ExpectFound(Finding::kIncorrect, [](const Call&) {});
  ExpectFound(Finding::kIncorrect, [](const Call& call) {
    for (size_t i = 0; i < kElements; ++i) call.y[i] = 1.0f / kColumns;
  });
  ExpectFound(Finding::kIncorrect,
              [](const Call& call) { std::memset(call.y, 0, kElements * sizeof(float)); });
  ExpectFound(Finding::kIncorrect,
              [](const Call& call) { std::memcpy(call.y, call.x, kElements * sizeof(float)); });
  // All but the last element, or the rows behind the first.
  ExpectFound(Finding::kIncorrect, [](const Call& call) {
    std::vector<float> y(kElements);
    SoftmaxRows(call.x, y.data());
    std::copy(y.begin(), y.end() - 1, call.y);
  });
  ExpectFound(Finding::kIncorrect, [](const Call& call) { SoftmaxRow(call.x, call.y, kColumns); });
}

TEST_F(TrialTest, WorkThatIsDoneOnceIsFound) {
  ExpectFound(Finding::kIncorrect, [] {
    return [runs = 0](const Call& call) mutable {
      if (runs++ == 0) SoftmaxRows(call.x, call.y);
    };
  });
  ExpectFound(Finding::kIncorrect, [] {
    return [runs = 0](const Call& call) mutable {
      if (runs++ % 2 == 0) SoftmaxRows(call.x, call.y);
    };
  });
  // Kept wherever the inputs are, and by their address.
  ExpectFound(Finding::kIncorrect, [] {
    return [kept = std::vector<float>()](const Call& call) mutable {
      if (kept.empty()) {
        kept.resize(kElements);
        SoftmaxRows(call.x, kept.data());
      }
      std::copy(kept.begin(), kept.end(), call.y);
    };
  });
  ExpectFound(Finding::kIncorrect, [] {
    return
        [kept = std::unordered_map<const float*, std::vector<float>>()](const Call& call) mutable {
          std::vector<float>& y = kept[call.x];
          if (y.empty()) {
            y.resize(kElements);
            SoftmaxRows(call.x, y.data());
          }
          std::copy(y.begin(), y.end(), call.y);
        };
  });
}

// The kernel remembers the last launch alone, and most launches lie elsewhere.
TEST_F(TrialTest, WorkThatIsLeftOutWhereTheLastLaunchWasIsFound) {
  ExpectFound(Finding::kIncorrect, [] {
    return [last = static_cast<const float*>(nullptr)](const Call& call) mutable {
      if (last != call.x) SoftmaxRows(call.x, call.y);
      last = call.x;
    };
  });
}

TEST_F(TrialTest, OutputThatIsReadIsFound) {
  // It adds to what was there, and it works only where it sees remains that it knows.
  ExpectFound(Finding::kIncorrect, [](const Call& call) {
    std::vector<float> y(kElements);
    SoftmaxRows(call.x, y.data());
    for (size_t i = 0; i < kElements; ++i) call.y[i] += y[i];
  });
  for (const bool nan : {false, true})
    ExpectFound(Finding::kIncorrect, [nan](const Call& call) {
      if (nan ? std::isnan(call.y[0]) : call.y[0] == 0) SoftmaxRows(call.x, call.y);
    });
}

TEST_F(TrialTest, ShortCutsOfArithmeticAreFound) {
  // No maximum is subtracted: the usual first softmax overflows.
  const TrialResult overflow = Try([](const Call& call) {
    for (int64_t i = 0; i < kRows; ++i) {
      const float* const x = call.x + i * kColumns;
      float sum = 0;
      for (int64_t j = 0; j < kColumns; ++j) sum += std::exp(x[j]);
      for (int64_t j = 0; j < kColumns; ++j) call.y[i * kColumns + j] = std::exp(x[j]) / sum;
    }
  });
  EXPECT_EQ(overflow.finding, Finding::kIncorrect);
  EXPECT_EQ(overflow.fill, "wide");
  // Rounded to 16 bits on the way.
  ExpectFound(Finding::kIncorrect, [](const Call& call) {
    std::vector<float> x(kElements);
    for (size_t i = 0; i < kElements; ++i) x[i] = ToFloat(FromFloat<BFloat16>(call.x[i]));
    SoftmaxRows(x.data(), call.y);
  });
  // A fast path for what the first values promise: where they are far apart, the largest of a row
  // takes all.
  kernel_.finite_inputs = true;
  ExpectFound(Finding::kIncorrect, [](const Call& call) {
    SoftmaxRows(call.x, call.y);
    const auto is_far = [](float x) { return std::fabs(x) < 1e-6f || std::fabs(x) > 1e6f; };
    if (std::count_if(call.x, call.x + 50, is_far) < 25) return;
    for (size_t i = 0; i < kElements; ++i) call.y[i] = call.y[i] > 0.5f ? 1.0f : 0.0f;
  });
}

TEST_F(TrialTest, InfinitiesAndNanAreTriedUnlessTheInputsAreFinite) {
  const KernelFunction blind = [](const Call& call) {
    std::vector<float> x(call.x, call.x + kElements);
    for (float& value : x)
      if (std::isnan(value)) value = 0;
    SoftmaxRows(x.data(), call.y);
  };
  const TrialResult result = Try(blind);
  EXPECT_EQ(result.finding, Finding::kIncorrect);
  EXPECT_EQ(result.fill, "special");
  ASSERT_TRUE(result.first.has_value());
  EXPECT_TRUE(std::isnan(result.first->expected));
  EXPECT_THAT(result.detail, HasSubstr("expected nan"));
  kernel_.finite_inputs = true;
  ExpectFound(Finding::kPassed, blind);
}

TEST_F(TrialTest, TheFirstWrongElementIsNamed) {
  const TrialResult result = Try([](const Call& call) {
    SoftmaxRows(call.x, call.y);
    for (const int64_t at : {5 * kColumns + 3, 6 * kColumns}) call.y[at] = 2;
  });
  EXPECT_EQ(result.finding, Finding::kIncorrect);
  EXPECT_EQ(result.fill, "normal");
  ASSERT_TRUE(result.first.has_value());
  EXPECT_THAT(result.first->index, ElementsAre(5, 3));
  EXPECT_EQ(result.first->got, 2);
  EXPECT_LT(result.first->expected, 1);
  EXPECT_GT(result.first->bound, 0);
  EXPECT_LT(result.first->bound, 1e-5);
  EXPECT_THAT(result.detail, StartsWith("[5, 3] is 2, expected 0."));
  EXPECT_EQ(result.histogram[0], 2);
  EXPECT_GT(result.max_absolute_error, 1);
}

TEST_F(TrialTest, WritesElsewhereAreFound) {
  const auto found = [this](Finding finding, const std::function<void(const Call&)>& spoil) {
    const KernelFunction kernel = [&](const Call& call) {
      SoftmaxRows(call.x, call.y);
      spoil(call);
    };
    ExpectFound(finding, kernel);
    return Try(kernel).detail;
  };
  const auto flip = [](float* at) { reinterpret_cast<char*>(at)[0] ^= 1; };
  EXPECT_EQ(found(Finding::kOutOfBounds, [&](const Call& call) { flip(call.y + kElements); }),
            "it wrote 1 bytes past the end of the output");
  EXPECT_EQ(found(Finding::kOutOfBounds, [&](const Call& call) { flip(call.y + kElements + 100); }),
            "it wrote 401 bytes past the end of the output");
  EXPECT_EQ(found(Finding::kOutOfBounds, [&](const Call& call) { flip(call.y - 1); }),
            "it wrote 4 bytes before the beginning of the output");
  EXPECT_EQ(
      found(Finding::kOutOfBounds, [&](const Call& call) { flip(const_cast<float*>(call.x) - 3); }),
      "it wrote 12 bytes before the beginning of input x");
  EXPECT_EQ(found(Finding::kInputModified,
                  [&](const Call& call) { flip(const_cast<float*>(call.x) + 2); }),
            "it wrote to byte 8 of input x");
  scratch_bytes_ = 40;
  EXPECT_EQ(found(Finding::kOutOfBounds, [&](const Call& call) { flip(call.scratch + 10); }),
            "it wrote 1 bytes past the end of the scratch memory");
  ExpectFound(Finding::kPassed, [&](const Call& call) {
    SoftmaxRows(call.x, call.y);
    for (int i = 0; i < 10; ++i) call.scratch[i] = 5;
  });
}

// The bytes behind an input differ from launch to launch.
TEST_F(TrialTest, ReadsElsewhereThatCountAreFound) {
  secret_ = 3;
  kernel_.finite_inputs = true;
  const TrialResult result = Try([](const Call& call) {
    SoftmaxRows(call.x, call.y);
    uint32_t behind;
    std::memcpy(&behind, call.x + kElements, sizeof(behind));
    // Within the bound: one unit in the last place.
    if (behind % 2 == 1) call.y[0] = std::nextafter(call.y[0], 2.0f);
  });
  EXPECT_EQ(result.finding, Finding::kNondeterministic);
  EXPECT_THAT(result.detail, HasSubstr("two launches on the same inputs differ at [0, 0]"));
}

TEST_F(TrialTest, ScratchHasRemains) {
  scratch_bytes_ = 4 * kElements;
  ExpectFound(Finding::kIncorrect, [](const Call& call) {
    for (size_t i = 0; i < kElements; ++i) call.scratch[i] += call.x[i];
    SoftmaxRows(call.scratch, call.y);
  });
  ExpectFound(Finding::kPassed, [](const Call& call) {
    for (size_t i = 0; i < kElements; ++i) call.scratch[i] = call.x[i];
    SoftmaxRows(call.scratch, call.y);
  });
}

TEST_F(TrialTest, OtherBitsAreFoundWhereTheyAreToBeTheSame) {
  const auto make = [] {
    return [runs = 0](const Call& call) mutable {
      SoftmaxRows(call.x, call.y);
      if (++runs % 2 == 0) call.y[kColumns] = std::nextafter(call.y[kColumns], 2.0f);
    };
  };
  kernel_.finite_inputs = true;
  ExpectFound(Finding::kNondeterministic, make);
  kernel_.deterministic = false;
  ExpectFound(Finding::kPassed, make);
}

TEST_F(TrialTest, AnErrorOfTheLaunchIsTheKernels) {
  status_ = absl::InternalError("an illegal address");
  const TrialResult result = Try([](const Call& call) { SoftmaxRows(call.x, call.y); });
  EXPECT_EQ(result.finding, Finding::kRuntimeError);
  EXPECT_EQ(result.detail, "an illegal address");
}

// Each input in its turn: a kernel that reads past the end of one does not outlive it.
TEST_F(TrialTest, InputsEndWhereMemoryEnds) {
  const Problem product = *MakeProblem(
      MatmulOp(), {{DataType::kFloat32, {kRows, kColumns}}, {DataType::kFloat32, {kColumns, 3}}},
      {});
  kernel_.op = &MatmulOp();
  kernel_.problem = &product;
  on_ = &guarded_;
  std::vector<int> at_the_end(2);
  int launches = 0;
  const auto multiply = [&](const Call& call) {
    const size_t sizes[] = {kElements, kColumns * 3};
    const float* const inputs[] = {call.x, call.b};
    for (size_t i = 0; i < 2; ++i)
      at_the_end[i] += guarded_.end() - reinterpret_cast<const char*>(inputs[i] + sizes[i]) <
                       static_cast<ptrdiff_t>(kOperandAlignmentBytes);
    ++launches;
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < 3; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < kColumns; ++k) sum += call.x[i * kColumns + k] * call.b[k * 3 + j];
        call.y[i * 3 + j] = sum;
      }
  };
  EXPECT_EQ(Try(multiply).finding, Finding::kPassed);
  EXPECT_GE(at_the_end[0], 2);
  EXPECT_GE(at_the_end[1], 2);
  EXPECT_LT(at_the_end[0] + at_the_end[1], launches);  // elsewhere, writes past it are found
  EXPECT_DEATH(Try([&](const Call& call) {
                 const volatile float behind = call.x[kElements + 64];
                 call.y[0] = behind;
               }),
               "");
  status_ = absl::InternalError("an illegal address");
  EXPECT_EQ(Try([](const Call&) {}).detail,
            "an illegal address; input a lay at the end of memory: nothing behind it can be read");
}

TEST_F(TrialTest, GuardedMemoryShowsTheSame) {
  on_ = &guarded_;
  const auto softmax = [](const Call& call) { SoftmaxRows(call.x, call.y); };
  ExpectFound(Finding::kPassed, softmax);
  ExpectFound(Finding::kOutOfBounds, [](const Call& call) {
    SoftmaxRows(call.x, call.y);
    reinterpret_cast<char*>(call.y + kElements)[0] ^= 1;
  });
  ExpectFound(Finding::kInputModified, [](const Call& call) {
    SoftmaxRows(call.x, call.y);
    const_cast<float*>(call.x)[0] += 1;
  });
  // Nothing is done where x and y are those of the last launch.
  ExpectFound(Finding::kIncorrect, [] {
    return [last = Call()](const Call& call) mutable {
      if (last.x != call.x || last.y != call.y) SoftmaxRows(call.x, call.y);
      last = call;
    };
  });
}

// One of four pieces of k is left out, and m's last tile.
TEST_F(TrialTest, SumsThatLackTermsAreFound) {
  constexpr int64_t kM = 17, kN = 5, kK = 32;
  const Problem product = *MakeProblem(
      MatmulOp(), {{DataType::kFloat32, {kM, kK}}, {DataType::kFloat32, {kK, kN}}}, {});
  kernel_.op = &MatmulOp();
  kernel_.problem = &product;
  const auto multiply = [](int64_t m, int64_t k_begin) {
    return [=](const Call& call) {
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < kN; ++j) {
          float sum = 0;
          for (int64_t k = k_begin; k < kK; ++k) sum += call.x[i * kK + k] * call.b[k * kN + j];
          call.y[i * kN + j] = sum;
        }
    };
  };
  ExpectFound(Finding::kPassed, multiply(kM, 0));
  ExpectFound(Finding::kIncorrect, multiply(kM, kK / 4));
  ExpectFound(Finding::kIncorrect, multiply(kM / 16 * 16, 0));
}

// No kernel of ours is found guilty, but where its allowance says that it deviates.
TEST_F(TrialTest, OurKernelsPass) {
  Registry registry;
  AddCpuKernels(&registry);
  int tried = 0;
  for (const Row& row : registry.rows()) {
    const Op& op = *registry.kernels()[static_cast<size_t>(row.kernel)].op;
    const OpCases cases = op.cases();
    const Implementation& implementation = row.implementation;
    if (cases.sized == nullptr || implementation.family == Family::kReference) continue;
    std::vector<TensorSpec> inputs;
    for (const Dims& dims : cases.sized(3000)) inputs.push_back({DataType::kFloat32, dims});
    const absl::StatusOr<Problem> problem = MakeProblem(op, inputs, {});
    if (!problem.ok() || !Registry::CheckRuns(row, *problem, device_.properties()).ok() ||
        AllowanceFor(cases, implementation.name, DataType::kFloat32).Deviates())
      continue;
    Buffer workspace;
    const auto enqueue = [&](const Operands& operands, const LaunchContext&) -> absl::Status {
      const auto allocate = [&](size_t bytes) -> absl::StatusOr<void*> {
        ASSIGN_OR_RETURN(workspace, stream_->AllocateMemory(bytes));
        return workspace.data();
      };
      ASSIGN_OR_RETURN(const PlanPtr plan,
                       MakePlanOn({stream_.get(), &device_.properties(), &operands, allocate},
                                  implementation, *problem));
      LaunchContext context;
      context.stream = stream_->native_handle();
      ASSIGN_OR_RETURN(context.workspace, allocate(plan->traits().workspace_bytes));
      return plan->Enqueue(operands, context);
    };
    kernel_.op = &op;
    kernel_.problem = &*problem;
    kernel_.plan = NewPlan({}, enqueue);
    for (Device* const device : {on_, static_cast<Device*>(&guarded_)}) {
      const auto result = Trial({device, stream_.get(), &pool_, 1}, kernel_).Run();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->finding, Finding::kPassed)
          << op.name << " " << implementation.name << ": " << FindingName(result->finding) << " "
          << result->fill << " " << result->detail;
    }
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

// The output has so many elements that slices of them are drawn.
TEST_F(TrialTest, LargeOutputsAreSampledAfterTheRun) {
  const Problem large =
      *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {Trial::kElementsMax / 1024 + 1, 1024}}}, {});
  kernel_.problem = &large;
  kernel_.finite_inputs = true;
  const auto softmax = [&](int64_t spoilt) {
    return [&, spoilt](const Call& call) {
      for (int64_t i = 0; i < large.inputs[0].dims[0]; ++i) {
        SoftmaxRow(call.x + i * 1024, call.y + i * 1024, 1024);
        if (i % spoilt == 0) call.y[i * 1024 + 7] = 2;
      }
    };
  };
  const TrialResult wrong = Try(softmax(2));
  EXPECT_EQ(wrong.finding, Finding::kIncorrect);
  ASSERT_TRUE(wrong.first.has_value());
  EXPECT_EQ(wrong.first->index[1], 7);
  EXPECT_LE(wrong.checked_elements, Trial::kSampledSlices * 1024);
}

// One row of four thousand is wrong: slices hardly meet it.
TEST_F(TrialTest, EveryElementOfALargeOutputIsComparedWithOurs) {
  const Problem large =
      *MakeProblem(SoftmaxOp(), {{DataType::kFloat32, {Trial::kElementsMax / 1024 + 1, 1024}}}, {});
  kernel_.problem = &large;
  const auto softmax = [&](int64_t spoilt) {
    return [&, spoilt](const Call& call) {
      for (int64_t i = 0; i < large.inputs[0].dims[0]; ++i)
        SoftmaxRow(call.x + i * 1024, call.y + i * 1024, 1024);
      if (spoilt >= 0) call.y[spoilt * 1024 + 7] += 0.01f;
    };
  };
  Registry registry;
  AddCpuKernels(&registry);
  const warpcall::Kernel& kernel = **registry.Find("softmax");
  const Row& row = **registry.Select(kernel, "cpu", large, device_.properties());
  kernel_.ours = *row.implementation.plan(large, {.device = &device_.properties()});
  EXPECT_EQ(Try(softmax(-1)).finding, Finding::kPassed);
  const TrialResult wrong = Try(softmax(2000));
  EXPECT_EQ(wrong.finding, Finding::kIncorrect);
  EXPECT_THAT(wrong.detail, HasSubstr("and the server's own implementation gives"));
  EXPECT_THAT(wrong.first->index, ElementsAre(2000, 7));
}

}  // namespace
}  // namespace warpcall::judge
