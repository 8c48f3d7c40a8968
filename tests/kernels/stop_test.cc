// Rows of the CPU that work for long look at their stop flag, often enough and at any size, and
// leave the rest when it is set. Counted, not timed: the machine's speed does not matter.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/fault/held.h"
#include "kernels/registry.h"
#include "tests/kernels/run_row.h"
#include "tests/kernels/variant_rows.h"

namespace warpcall::testing {
namespace {

constexpr uint8_t kPoison = 0xA5;

// Set from look number `looks_until_set` on; counts the looks.
class CountingFlag final : public StopFlag {
 public:
  explicit CountingFlag(int64_t looks_until_set) : looks_until_set_(looks_until_set) {}
  bool IsSet() const override { return looks_.fetch_add(1) >= looks_until_set_; }
  int64_t looks() const { return looks_.load(); }

 private:
  const int64_t looks_until_set_;
  mutable std::atomic<int64_t> looks_{0};
};
constexpr int64_t kNever = int64_t{1} << 60;

struct Case {
  const char* kernel;
  std::vector<Dims> inputs;
  std::vector<NamedAttribute> attributes;
  int64_t looks_min = 3;
  DataType type = DataType::kFloat32;
  absl::string_view row = "";  // rows with this name only
};

// Looks of softmax and the norms, whose rows go over their elements at least twice.
constexpr int64_t LooksOfTwoPasses(int64_t elements) {
  return 2 * elements / cpu::kElementsPerLook;
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.kernel;
  for (const Dims& dims : c.inputs) {
    *out << " ";
    for (const int64_t dim : dims) *out << dim << ",";
  }
}

// Each shape is long in another loop: many elements, one row, some long rows, long columns; sums
// over a long k, blocks, few rows with k adjacent and not.
const Case kCases[] = {
    {"identity", {{1 << 24}}, {}},
    {"gelu", {{1 << 20}}, {{"approximate", std::string("none")}}},
    {"gelu", {{1 << 20}}, {{"approximate", std::string("tanh")}}},
    {"softmax", {{1, 1 << 20}}, {}, LooksOfTwoPasses(1 << 20)},
    {"softmax", {{8, 1 << 19}}, {}, LooksOfTwoPasses(1 << 22)},
    {"softmax", {{1 << 16, 16}}, {{"axis", int64_t{0}}}, LooksOfTwoPasses(1 << 20)},
    {"fused", {{1 << 22}, {1 << 22}}, {{"expression", std::string("gelu(x0 + x1)")}}},
    {"fused", {{1, 1 << 20}}, {{"expression", std::string("softmax(x0)")}}},
    {"fused", {{1 << 12, 1 << 10}}, {{"expression", std::string("x0 - mean(x0)")}}},
    // Most of the work is done once for each row.
    {"fused",
     {{1 << 20, 1}},
     {{"expression", std::string("sum(pow(pow(pow(x0, 1.01), 1.01), 1.01))")}},
     30,
     DataType::kFloat32,
     "chain_of_loops"},
    {"layernorm", {{1, 1 << 20}, {1 << 20}, {1 << 20}}, {}, LooksOfTwoPasses(1 << 20)},
    {"rmsnorm", {{8, 1 << 19}, {1 << 19}}, {}, LooksOfTwoPasses(1 << 22)},
    {"layernorm", {{1 << 16, 16}, {16}, {16}}, {}, LooksOfTwoPasses(1 << 20)},
    {"matmul", {{1, 1 << 20}, {1 << 20, 1}}, {}},
    {"matmul", {{64, 512}, {512, 2048}}, {}},
    {"matmul", {{2, 1 << 17}, {1 << 17, 16}}, {}},
    {"matmul", {{2, 1 << 17}, {16, 1 << 17}}, {{"transpose_b", true}}},
    {"matmul", {{2000, 16, 16}, {2000, 16, 16}}, {}},
    {"matmul", {{24, 64}, {64, 16384}}, {}, 8, DataType::kBFloat16},
    // Which may go by pairs: sums over a long k, and blocks of columns and of rows.
    {"matmul", {{64, 4096}, {4096, 256}}, {}, 3, DataType::kBFloat16},
    {"matmul", {{32, 64}, {64, 16384}}, {}, 16, DataType::kBFloat16},
    {"matmul", {{8192, 16}, {16, 64}}, {}, 8, DataType::kBFloat16},
    {"linear", {{64, 512}, {2048, 512}, {2048}}, {}},
};

class StopTest : public ::testing::TestWithParam<Case> {
 protected:
  StopTest() {
    std::vector<TensorSpec> specs;
    for (const Dims& dims : GetParam().inputs) specs.push_back({GetParam().type, dims});
    kernel_ = *CpuKernels().Find(GetParam().kernel);
    problem_ = *MakeProblem(*kernel_->op, specs, GetParam().attributes);
    for (const TensorSpec& spec : specs) {
      inputs_.emplace_back(spec.bytes());
      inputs_.back().Poison(0);
    }
    output_ = std::make_unique<Memory>(problem_.outputs[0].bytes());
  }

  void Run(const Implementation& row, int threads, const StopFlag& stop) {
    cpu::ThreadPool pool(threads);
    DeviceProperties device;
    device.multiprocessors = threads;
    output_->Poison(kPoison);
    Operands operands = OperandsOf(inputs_);
    operands.outputs.push_back(output_->data());
    EXPECT_TRUE(
        RunOnCpu({.pool = &pool, .device = &device, .stop = &stop}, row, problem_, operands).ok());
  }

  bool LastElementIsWritten() const {
    const auto* end = static_cast<const uint8_t*>(output_->data()) + output_->bytes();
    return !(end[-1] == kPoison && end[-2] == kPoison && end[-3] == kPoison && end[-4] == kPoison);
  }

  const Kernel* kernel_;
  Problem problem_;
  std::vector<Memory> inputs_;
  std::unique_ptr<Memory> output_;
};

TEST_P(StopTest, EveryRowLooksOftenAndEndsEarlyWhenTheFlagIsSet) {
  for (const int id : kernel_->rows) {
    const Implementation& row = CpuKernels().rows()[static_cast<size_t>(id)].implementation;
    if (row.family == Family::kLibrary) continue;  // not ours
    if (!GetParam().row.empty() && GetParam().row != row.name) continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(row.name, ", ", threads, " threads"));
      const CountingFlag set(0);
      Run(row, threads, set);
      // Each pass, and each thread in it, may look once.
      EXPECT_LT(set.looks(), 100);
      if (problem_.outputs[0].elements() > 1) {
        EXPECT_FALSE(LastElementIsWritten());
      }
      // Under a tool conformance runs whole problems, but smaller ones.
      if (TestElementsMax() > 0) continue;
      const CountingFlag never(kNever);
      Run(row, threads, never);
      EXPECT_GE(never.looks(), GetParam().looks_min);
      EXPECT_LT(set.looks(), std::max<int64_t>(never.looks(), 4));
      EXPECT_TRUE(LastElementIsWritten());
    }
  }
}

// Small integers, whose products and sums are exact.
float ElementOf(int64_t index) { return static_cast<float>(index * 7919 % 5 - 2); }

// A product that takes more than a piece; its last piece is a short one.
class OnednnPiecesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kM = 2500, kK = 1000, kN = 1000;
  static constexpr uint8_t kUntouched = 0xA5;

  void Run(const StopFlag& stop) {
    const Kernel& kernel = **CpuKernels().Find("matmul");
    DeviceProperties device;
    device.multiprocessors = 1;
    const Problem problem = *MakeProblem(
        *kernel.op, {{DataType::kFloat32, {kM, kK}}, {DataType::kFloat32, {kK, kN}}}, {});
    const Row& row = **CpuKernels().Select(kernel, "onednn_matmul", problem, device);
    for (int64_t i = 0; i < kM * kK; ++i) static_cast<float*>(a_.data())[i] = ElementOf(i);
    for (int64_t i = 0; i < kK * kN; ++i) static_cast<float*>(b_.data())[i] = ElementOf(i + 1);
    c_.Poison(kUntouched);
    cpu::ThreadPool pool(1);
    Operands operands;
    operands.inputs = {a_.data(), b_.data()};
    operands.outputs = {c_.data()};
    EXPECT_TRUE(RunOnCpu({.pool = &pool, .device = &device, .stop = &stop}, row.implementation,
                         problem, operands)
                    .ok());
  }

  static float Exact(int64_t i, int64_t j) {
    float sum = 0;
    for (int64_t p = 0; p < kK; ++p) sum += ElementOf(i * kK + p) * ElementOf(p * kN + j + 1);
    return sum;
  }
  float C(int64_t i, int64_t j) const { return static_cast<const float*>(c_.data())[i * kN + j]; }

  Memory a_{kM * kK * sizeof(float)};
  Memory b_{kK * kN * sizeof(float)};
  Memory c_{kM * kN * sizeof(float)};
};

TEST_F(OnednnPiecesTest, MakeUpTheWhole) {
  const CountingFlag never(kNever);
  Run(never);
  EXPECT_GE(never.looks(), 2);
  for (int64_t i = 0; i < kM; ++i)
    for (const int64_t j : {int64_t{0}, i % kN, kN - 1}) ASSERT_EQ(C(i, j), Exact(i, j)) << i;
}

TEST_F(OnednnPiecesTest, OnlyTheFirstIsDoneWhenTheFlagIsSetThen) {
  const CountingFlag set(1);
  Run(set);
  EXPECT_EQ(C(0, 0), Exact(0, 0));
  uint32_t last;
  std::memcpy(&last, static_cast<const char*>(c_.data()) + c_.bytes() - 4, 4);
  EXPECT_EQ(last, 0xA5A5A5A5u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, StopTest, ::testing::ValuesIn(kCases));

TEST(StopCases, AreOfEveryKernel) {
  for (const Kernel& kernel : CpuKernels().kernels())
    EXPECT_TRUE(absl::c_any_of(
        kCases, [&](const Case& c) { return absl::string_view(c.kernel) == kernel.op->name; }))
        << kernel.op->name << ": add a problem to kCases that takes it long";
}

}  // namespace
}  // namespace warpcall::testing

namespace warpcall {
namespace {

// The kernel that tests hold lanes with: it waits for its gate, but for nobody once its stop flag
// is set.

constexpr std::array<float, 2> kInput = {1.5f, -2};

// Calls `look` each time that it is asked.
class CallingFlag final : public StopFlag {
 public:
  explicit CallingFlag(std::function<bool()> look) : look_(std::move(look)) {}
  bool IsSet() const override { return look_(); }

 private:
  const std::function<bool()> look_;
};

class HeldTest : public ::testing::Test {
 protected:
  HeldTest() { close(open(gate_.c_str(), O_CREAT | O_CLOEXEC, 0600)); }
  ~HeldTest() override { unlink(gate_.c_str()); }

  // Runs the row, which calls `look` while it waits, and returns its output for zeros.
  std::array<float, 2> Run(std::function<bool()> look) {
    const auto problem =
        MakeProblem(HeldOp(), {{DataType::kFloat32, {2}}}, {{.name = "gate", .value = gate_}});
    EXPECT_TRUE(problem.ok()) << problem.status();
    std::array<float, 2> output = {};
    const CallingFlag flag(std::move(look));
    EXPECT_TRUE(testing::RunOnCpu({.stop = &flag}, HeldCpuRows()[0], *problem,
                                  {{kInput.data()}, {output.data()}})
                    .ok());
    return output;
  }

  const std::string gate_ = absl::StrCat(::testing::TempDir(), "/held-test-", getpid());
};

TEST_F(HeldTest, WaitsWhileItsGateIsClosed) {
  int looks = 0;
  EXPECT_EQ(Run([&] {
              if (++looks == 3) unlink(gate_.c_str());
              return false;
            }),
            kInput);
  EXPECT_EQ(looks, 3);
}

TEST_F(HeldTest, LeavesItsWorkWhenToldToStop) {
  int looks = 0;
  EXPECT_EQ(Run([&] { return ++looks == 3; }), (std::array<float, 2>{}));
  EXPECT_EQ(looks, 3);
}

TEST_F(HeldTest, IsReckonedAtWhatTheRequestSays) {
  const auto problem = MakeProblem(HeldOp(), {{DataType::kFloat32, {2}}},
                                   {{.name = "flops", .value = int64_t{1} << 40}});
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(HeldOp().work(*problem).flops, int64_t{1} << 40);
  EXPECT_EQ(HeldOp().work(*problem).bytes, 16);
}

}  // namespace
}  // namespace warpcall
