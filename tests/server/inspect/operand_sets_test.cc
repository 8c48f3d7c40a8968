#include "server/inspect/operand_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/gelu/gelu.h"
#include "kernels/matmul/matmul.h"
#include "server/inspect/fill.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/fake_device.h"

namespace warpcall::inspect {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

Problem Gelu(Dims dims) { return *MakeProblem(GeluOp(), {{DataType::kFloat32, dims}}, {}); }

DeviceProperties Gpu() {
  DeviceProperties gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.l2_bytes = 60 * kMib;
  gpu.memory_bytes = 141'000 * kMib;
  return gpu;
}

TEST(SetsForTest, AGpusSetsPassFiveTimesItsCache) {
  for (const int64_t mib : {5, 8, 30, 100, 200}) {
    const int64_t sets = SetsFor(mib * kMib, Gpu());
    EXPECT_GE(sets * mib, 300) << mib;
    EXPECT_LE((sets - 2) * mib, 300) << mib;
  }
}

TEST(SetsForTest, ACpusSetsPassTwiceItsLastCacheWithinTheBound) {
  DeviceProperties cpu;
  cpu.memory_bytes = 1024 * 1024 * kMib;
  cpu.l2_bytes = 20 * kMib;
  const int64_t wanted = std::min(2 * CacheBytes(cpu), kCpuSetsBytesMax);
  ASSERT_GE(CacheBytes(cpu), 20 * kMib);
  EXPECT_GT((SetsFor(16 * kMib, cpu) + 1) * 16 * kMib, std::min(wanted, kSetsMax * 16 * kMib));
}

TEST(SetsForTest, IsBoundedInNumberInBytesAndByTheDevice) {
  EXPECT_EQ(SetsFor(1000, Gpu()), kSetsMax);
  EXPECT_EQ(SetsFor(0, Gpu()), 1);
  EXPECT_EQ(SetsFor(2 * kSetsBytesMax, Gpu()), 1);
  EXPECT_EQ(SetsFor(std::numeric_limits<int64_t>::max(), Gpu()), 1);
  DeviceProperties huge_cache = Gpu();
  huge_cache.l2_bytes = 10'000 * kMib;
  EXPECT_EQ(SetsFor(100 * kMib, huge_cache), kSetsBytesMax / (100 * kMib));
  huge_cache.memory_bytes = 1600 * kMib;
  EXPECT_EQ(SetsFor(100 * kMib, huge_cache), 2);
}

TEST(OperandLayoutTest, OperandsAreAlignedAndApart) {
  const Problem problem =
      *MakeProblem(MatmulOp(), {{DataType::kBFloat16, {3, 5}}, {DataType::kBFloat16, {5, 0}}}, {});
  const OperandLayout layout(problem);
  alignas(256) char memory[1024];
  const Operands operands = layout.At(memory);
  EXPECT_EQ(operands.inputs[0], memory);
  EXPECT_EQ(operands.inputs[1], nullptr);
  EXPECT_EQ(operands.outputs[0], nullptr);
  EXPECT_EQ(layout.bytes, 256);
  const OperandLayout three(Gelu({65}));
  EXPECT_EQ(three.bytes, 1024);
  EXPECT_EQ(three.At(memory).outputs[0], memory + 512);
}

TEST(OperandLayoutTest, SaysTooMuchRatherThanLittle) {
  EXPECT_EQ(OperandLayout(Gelu({int64_t{1} << 60})).bytes, std::numeric_limits<int64_t>::max());
}

// Device memory that the host's is copied to, as a GPU's.
class MirroredSetsTest : public ::testing::Test {
 protected:
  MirroredSetsTest() {
    properties_.kind = DeviceKind::kCuda;
    stream_ = *device_.CreateStream();
  }

  absl::StatusOr<OperandSets> Create(int64_t sets) {
    return OperandSets::Create({.problem = &problem_, .seed = 3, .sets = sets}, properties_,
                               stream_.get(), &pool_);
  }
  std::vector<float> Expected() const {
    std::vector<float> values(1000);
    NormalSequence(3, 0).Write(DataType::kFloat32, 0, 1000, values.data());
    return values;
  }

  const Problem problem_ = Gelu({1000});
  testing::FakeDevice::Control control_;
  testing::FakeDevice device_{&control_, "fake:0"};
  DeviceProperties properties_;
  cpu::ThreadPool pool_{2};
  std::unique_ptr<Stream> stream_;
};

TEST_F(MirroredSetsTest, AllSetsHoldTheSameInputsAndPoisonedOutputs) {
  const absl::StatusOr<OperandSets> sets = Create(3);
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 3);
  std::set<const void*> places = {sets->host().inputs[0]};
  for (int64_t i = 0; i < 3; ++i) {
    const Operands& set = (*sets)[i];
    EXPECT_TRUE(places.insert(set.inputs[0]).second);
    EXPECT_EQ(std::memcmp(set.inputs[0], Expected().data(), 4000), 0);
    for (int j = 0; j < 1000; ++j)
      ASSERT_TRUE(std::isnan(static_cast<const float*>(set.outputs[0])[j])) << i << ", " << j;
  }
  EXPECT_EQ(std::memcmp(sets->host().inputs[0], Expected().data(), 4000), 0);
}

TEST_F(MirroredSetsTest, ChosenElementsOfTheOutputArePoisonedAndComeToTheHost) {
  absl::StatusOr<OperandSets> sets = Create(2);
  ASSERT_TRUE(sets.ok()) << sets.status();
  auto* const device = static_cast<float*>((*sets)[0].outputs[0]);
  const auto* const host = static_cast<const float*>(sets->host().outputs[0]);
  std::fill_n(device, 1000, 1.0f);
  ASSERT_TRUE(sets->ReadOutput({{0, 1000}}).ok());
  EXPECT_EQ(std::count(host, host + 1000, 1.0f), 1000);
  ASSERT_TRUE(sets->Poison({{3, 5}, {999, 1000}}).ok());
  std::fill_n(device + 100, 10, 2.0f);
  ASSERT_TRUE(sets->ReadOutput({{4, 6}, {105, 120}, {999, 1000}}).ok());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(std::isnan(device[i]), i == 3 || i == 4 || i == 999) << i;
    EXPECT_EQ(std::isnan(host[i]), i == 4 || i == 999) << i;
    if (i == 4 || i == 999) continue;
    EXPECT_EQ(host[i], i >= 105 && i < 110 ? 2.0f : 1.0f) << i;
  }
}

TEST_F(MirroredSetsTest, FewerSetsDoWhereMemoryEnds) {
  control_.memory_limit_bytes = 20'000;  // a set takes 8192
  const absl::StatusOr<OperandSets> sets = Create(10);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->size(), 2);
}

TEST_F(MirroredSetsTest, WithoutMemoryForOneThereAreNone) {
  control_.memory_limit_bytes = 8191;
  EXPECT_EQ(Create(10).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(control_.memory_used_bytes, 0);
}

TEST_F(MirroredSetsTest, AFailedCopyIsReported) {
  control_.on_operation = [](const char* operation) {
    return std::string(operation) == "h2d" ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_EQ(Create(1).status(), absl::UnavailableError("lost"));
  EXPECT_EQ(control_.memory_used_bytes, 0);
}

TEST(OperandSetsTest, OnTheCpuTheHostReadsTheFirstSetItself) {
  CpuDevice device(2);
  const std::unique_ptr<Stream> stream = *device.CreateStream();
  cpu::ThreadPool pool(2);
  const Problem problem = Gelu({1000});
  absl::StatusOr<OperandSets> sets = OperandSets::Create(
      {.problem = &problem, .seed = 1, .sets = 2}, device.properties(), stream.get(), &pool);
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->host().inputs[0], (*sets)[0].inputs[0]);
  EXPECT_EQ(sets->host().outputs[0], (*sets)[0].outputs[0]);
  EXPECT_EQ(std::memcmp((*sets)[0].inputs[0], (*sets)[1].inputs[0], 4000), 0);
}

TEST(OperandSetsTest, APeriodRepeatsToTheEnd) {
  CpuDevice device(2);
  const std::unique_ptr<Stream> stream = *device.CreateStream();
  cpu::ThreadPool pool(3);
  const Problem problem = Gelu({1003});
  absl::StatusOr<OperandSets> sets = OperandSets::Create(
      {.problem = &problem, .seed = 1, .period = 100}, device.properties(), stream.get(), &pool);
  ASSERT_TRUE(sets.ok()) << sets.status();
  const float* const values = static_cast<const float*>(sets->host().inputs[0]);
  for (int i = 0; i < 1003; ++i) ASSERT_EQ(values[i], values[i % 100]) << i;
  EXPECT_NE(values[0], values[1]);
}

}  // namespace
}  // namespace warpcall::inspect
