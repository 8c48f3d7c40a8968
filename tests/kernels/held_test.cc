// The kernel that tests hold lanes with: it waits for its gate, but for nobody once its stop flag
// is set.
#include "kernels/fault/held.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/kernels/run_row.h"

namespace warpcall {
namespace {

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
