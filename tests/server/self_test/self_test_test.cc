// The server's side of the self-test, with children that are threads of this process and report as
// a test wants.
#include "server/self_test/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "proto/common/status_macros.h"
#include "server/self_test/child.h"
#include "tests/e2e/eventually.h"

namespace warpcall::self_test {
namespace {

using process::Channel;
using process::Child;

using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using Kind = Report::Kind;

constexpr int kRows = 8;  // identity and gelu, four each

// Plays a child at its end of the socket, for the rows that it is given.
using Script = std::function<void(const Channel& channel, const std::vector<int>& rows)>;

void Tell(const Channel& channel, Kind kind, int row) {
  Report report;
  report.kind = kind;
  report.row = row;
  report.data_types = 1u << static_cast<uint32_t>(DataType::kFloat32);
  if (kind == Kind::kCrashed) report.signal = SIGILL;
  if (kind == Kind::kFailed) SetText("wrong: element 3", &report);
  channel.SendStruct(report).IgnoreError();
}

void Pass(const Channel& channel, int row) {
  Tell(channel, Kind::kStarted, row);
  Tell(channel, Kind::kPassed, row);
}

// Until the server closes its end.
void AwaitEnd(const Channel& channel) {
  while (channel.Receive(0).ok()) {
  }
}

class SelfTestTest : public ::testing::Test {
 protected:
  SelfTestTest() {
    registry_.Add(IdentityOp(), IdentityCpuRows());
    registry_.Add(GeluOp(), GeluCpuRows());
    EXPECT_EQ(registry_.rows().size(), static_cast<size_t>(kRows));
  }
  ~SelfTestTest() override {
    for (std::thread& child : children_) child.join();
  }

  std::vector<Verdict> Run(Script script) { return Run(OptionsFor(std::move(script))); }
  std::vector<Verdict> Run(SelfTest::Options options) {
    SelfTest test(registry_, std::move(options));
    return test.Await();
  }

  SelfTest::Options OptionsFor(Script script) {
    SelfTest::Options options;
    options.subjects = {{"cpu", DeviceKind::kCpu}};
    options.start = [this, script](const std::string&, const std::vector<int>& rows) {
      return Start(script, rows, 0);
    };
    return options;
  }

  // A child's thread; the server takes `process` for the child's id.
  absl::StatusOr<std::unique_ptr<Child>> Start(const Script& script, const std::vector<int>& rows,
                                               pid_t process) {
    std::pair<Descriptor, Descriptor> sockets;
    ASSIGN_OR_RETURN(sockets, process::MakeSockets(SOCK_STREAM));
    const absl::MutexLock lock(&mutex_);
    given_.push_back(rows);
    children_.emplace_back([script, socket = std::move(sockets.second), rows]() mutable {
      script(Channel(std::move(socket)), rows);
    });
    return std::make_unique<Child>(Channel(std::move(sockets.first)), process);
  }

  Registry registry_;
  absl::Mutex mutex_;
  std::vector<std::vector<int>> given_;  // to each child
  std::vector<std::thread> children_;
};

std::vector<std::string> ReasonsOf(const std::vector<Verdict>& verdicts) {
  std::vector<std::string> reasons;
  for (const Verdict& verdict : verdicts) reasons.push_back(verdict.unavailable.reason);
  return reasons;
}

TEST_F(SelfTestTest, OneChildTriesAllWhileAllIsWell) {
  const std::vector<Verdict> verdicts =
      Run([](const Channel& channel, const std::vector<int>& rows) {
        for (const int row : rows) Pass(channel, row);
      });
  EXPECT_THAT(given_, ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)));
  ASSERT_EQ(verdicts.size(), static_cast<size_t>(kRows));
  for (int row = 0; row < kRows; ++row) {
    EXPECT_EQ(verdicts[row].row, row);
    EXPECT_EQ(verdicts[row].device, "cpu");
    EXPECT_EQ(verdicts[row].unavailable.reason, "");
    EXPECT_THAT(verdicts[row].data_types, ElementsAre(DataType::kFloat32));
  }
}

TEST_F(SelfTestTest, TellsHowFarItIs) {
  SelfTest::Options options = OptionsFor([](const Channel& channel, const std::vector<int>& rows) {
    for (const int row : rows) {
      if (row != 2) {
        Pass(channel, row);
        continue;
      }
      Tell(channel, Kind::kStarted, row);
      Tell(channel, Kind::kCrashed, row);
      return;
    }
  });
  std::vector<std::vector<int>> told;
  options.progress = [&](int row, int number, int count) {
    const absl::MutexLock lock(&mutex_);
    told.push_back({row, number, count});
  };
  Run(std::move(options));
  ASSERT_EQ(given_.size(), 2u);  // the second child goes on after the row that crashed
  ASSERT_EQ(told.size(), static_cast<size_t>(kRows) + 1);
  for (int row = 0; row < kRows; ++row)
    EXPECT_THAT(told[static_cast<size_t>(row)], ElementsAre(row, row + 1, kRows));
  EXPECT_THAT(told.back(), ElementsAre(-1, kRows, kRows));
}

TEST_F(SelfTestTest, WhateverEndsAChildIsTheDoingOfItsRow) {
  const std::vector<Verdict> verdicts =
      Run([](const Channel& channel, const std::vector<int>& rows) {
        for (const int row : rows) {
          if (row != 1 && row != 2 && row != 5) {
            Pass(channel, row);
            continue;
          }
          Tell(channel, Kind::kStarted, row);
          if (row == 1) return Tell(channel, Kind::kCrashed, row);
          if (row == 2) return;  // killed by the system, say
          Tell(channel, Kind::kFailed, row);
        }
      });
  EXPECT_THAT(given_, ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7),
                                  ElementsAre(2, 3, 4, 5, 6, 7), ElementsAre(3, 4, 5, 6, 7)));
  EXPECT_THAT(ReasonsOf(verdicts), ElementsAre("", "failed its self-test: crashed with SIGILL",
                                               "failed its self-test: its process ended", "", "",
                                               "failed its self-test: wrong: element 3", "", ""));
}

TEST_F(SelfTestTest, ARowThatNeverEndsIsLeftBehind) {
  SelfTest::Options options = OptionsFor([](const Channel& channel, const std::vector<int>& rows) {
    for (const int row : rows) {
      if (row != 4) {
        Pass(channel, row);
        continue;
      }
      Tell(channel, Kind::kStarted, row);
      return AwaitEnd(channel);
    }
  });
  // A resting row has six times as long by the clock; one that ends at once has it too, while this
  // machine is too busy to run it.
  options.row_ns_max = 300'000'000;
  const std::string reason = absl::StrCat("failed its self-test: took longer than ",
                                          static_cast<double>(options.row_ns_max) / 1e9, " s");
  const std::vector<Verdict> verdicts = Run(std::move(options));
  EXPECT_THAT(given_, ElementsAre(::testing::SizeIs(8), ElementsAre(5, 6, 7)));
  for (const Verdict& verdict : verdicts)
    EXPECT_EQ(verdict.unavailable.reason, verdict.row == 4 ? reason : "");
}

// A process that is stopped sees no socket closed.
TEST_F(SelfTestTest, AStoppedChildIsKilledWithItsRow) {
  const Script script = [](const Channel& channel, const std::vector<int>& rows) {
    Tell(channel, Kind::kStarted, rows.front());
    AwaitEnd(channel);
  };
  SelfTest::Options options = OptionsFor(script);
  std::atomic<pid_t> stopped{0};
  options.start = [&](const std::string&,
                      const std::vector<int>& rows) -> absl::StatusOr<std::unique_ptr<Child>> {
    if (stopped != 0) return absl::InternalError("one will do");
    const pid_t pid = fork();
    if (pid == 0) {
      for (;;) raise(SIGSTOP);
    }
    stopped = pid;
    return Start(script, rows, pid);
  };
  options.row_ns_max = 10'000'000;
  Run(std::move(options));
  int status = 0;
  const bool ended = Eventually([&] { return waitpid(stopped, &status, WNOHANG) == stopped; });
  EXPECT_TRUE(ended && WIFSIGNALED(status));
  if (!ended) kill(stopped, SIGKILL);
}

TEST_F(SelfTestTest, ADeviceThatDoesNotOpenIsToldOfEachRow) {
  const std::vector<Verdict> verdicts = Run([](const Channel& channel, const std::vector<int>&) {
    Report report;
    report.kind = Kind::kNoDevice;
    SetText("the GPU has no memory left", &report);
    channel.SendStruct(report).IgnoreError();
  });
  ASSERT_EQ(verdicts.size(), static_cast<size_t>(kRows));
  EXPECT_EQ(given_.size(), 1u);
  for (const Verdict& verdict : verdicts) {
    EXPECT_EQ(verdict.unavailable.reason, "the GPU has no memory left");
    EXPECT_EQ(verdict.unavailable.cause, Unavailability::Cause::kDriver);
  }
}

TEST_F(SelfTestTest, AChildThatEndsBeforeItsFirstRowIsNotStartedForEver) {
  const std::vector<Verdict> verdicts = Run([](const Channel&, const std::vector<int>&) {});
  EXPECT_EQ(given_.size(), 1u);
  ASSERT_EQ(verdicts.size(), static_cast<size_t>(kRows));
  for (const Verdict& verdict : verdicts)
    EXPECT_THAT(verdict.unavailable.reason, HasSubstr("its process ended"));
}

TEST_F(SelfTestTest, WhatIsNoReportIsNoPass) {
  const std::vector<Verdict> verdicts =
      Run([](const Channel& channel, const std::vector<int>& rows) {
        for (const int row : rows) {
          Tell(channel, Kind::kStarted, row);
          Report report;
          report.row = row;
          report.kind = row == 1 ? static_cast<Kind>(7) : row == 2 ? Kind::kFailed : Kind::kPassed;
          report.cause = Unavailability::Cause::kLibrary;  // and no reason
          report.ns = row == 4 ? -1 : 1;
          channel.SendStruct(report).IgnoreError();
          if (row == 1 || row == 2 || row == 4) return AwaitEnd(channel);
        }
      });
  const std::string nonsense = "failed its self-test: its process sent nonsense";
  EXPECT_THAT(ReasonsOf(verdicts), ElementsAre("", nonsense, nonsense, "", nonsense, "", "", ""));
}

TEST_F(SelfTestTest, WhatARowLacksIsItsReasonAndNoFailure) {
  const std::vector<Verdict> verdicts =
      Run([](const Channel& channel, const std::vector<int>& rows) {
        for (const int row : rows) {
          Tell(channel, Kind::kStarted, row);
          Report report;
          report.row = row;
          report.kind = row < 2 ? Kind::kFailed : Kind::kPassed;
          report.cause =
              row == 0 ? Unavailability::Cause::kLibrary : Unavailability::Cause::kCompile;
          SetText("there is none", &report);
          channel.SendStruct(report).IgnoreError();
        }
      });
  EXPECT_THAT(ReasonsOf(verdicts),
              ElementsAre("there is none", "there is none", "", "", "", "", "", ""));
  EXPECT_EQ(verdicts[0].unavailable.cause, Unavailability::Cause::kLibrary);
  EXPECT_EQ(verdicts[1].unavailable.cause, Unavailability::Cause::kCompile);
}

// A GPU that is none of compute capability 9.0 has rows that take nothing, and is well.
TEST(CauseOfTest, KernelsForAnotherMachineAreNoFailure) {
  using Cause = Unavailability::Cause;
  const absl::Status nothing = absl::UnimplementedError("it needs compute capability 9.0");
  for (const Family family :
       {Family::kCuda, Family::kLibrary, Family::kTriton, Family::kCompiled}) {
    EXPECT_EQ(CauseOf(family, nothing), Cause::kLibrary);
    EXPECT_EQ(CauseOf(family, absl::InternalError("wrong")), Cause::kSelfTest);
  }
  EXPECT_EQ(CauseOf(Family::kCpu, nothing), Cause::kSelfTest);
}

TEST_F(SelfTestTest, ARowThatStartsAgainAndAgainIsLeftBehind) {
  const std::vector<Verdict> verdicts =
      Run([](const Channel& channel, const std::vector<int>& rows) {
        Report report;
        report.row = rows.front();
        while (channel.SendStruct(report).ok()) {
        }
      });
  for (const Verdict& verdict : verdicts)
    EXPECT_EQ(verdict.unavailable.reason, "failed its self-test: its process reported another row");
}

// Rows 1 and 2 of identity, and all of gelu.
class SlowRowsTest : public SelfTestTest {
 protected:
  SlowRowsTest() {
    registry_ = Registry();
    const auto add = [this](const Op& op, std::vector<Implementation> rows,
                            const std::vector<size_t>& slow) {
      for (const size_t row : slow) rows[row].slow_to_plan = true;
      registry_.Add(op, rows);
    };
    add(IdentityOp(), IdentityCpuRows(), {1, 2});
    add(GeluOp(), GeluCpuRows(), {0, 1, 2, 3});
  }

  static void PassAll(const Channel& channel, const std::vector<int>& rows) {
    for (const int row : rows) Pass(channel, row);
  }
};

std::vector<int> RowsOf(const std::vector<Verdict>& verdicts) {
  std::vector<int> rows;
  for (const Verdict& verdict : verdicts) rows.push_back(verdict.row);
  return rows;
}

TEST_F(SlowRowsTest, AreTriedLastAndToldOfByKernel) {
  SelfTest test(registry_, OptionsFor(PassAll));
  EXPECT_THAT(RowsOf(test.Await()), ElementsAre(0, 3));
  EXPECT_THAT(test.others(), ElementsAre(4, 5, 6, 7, 1, 2));  // nothing else runs gelu
  std::vector<std::vector<int>> told;
  test.TryOthers([&](std::vector<Verdict> verdicts) { told.push_back(RowsOf(verdicts)); });
  EXPECT_THAT(test.Await(), ::testing::IsEmpty());
  EXPECT_THAT(told, ElementsAre(ElementsAre(4, 5, 6, 7), ElementsAre(1, 2)));
  EXPECT_THAT(given_, ElementsAre(ElementsAre(0, 3), ElementsAre(4, 5, 6, 7, 1, 2)));
}

TEST_F(SlowRowsTest, OneThatEndsItsChildHoldsUpNoOther) {
  SelfTest test(registry_, OptionsFor([](const Channel& channel, const std::vector<int>& rows) {
                  for (const int row : rows) {
                    if (row != 5) {
                      Pass(channel, row);
                      continue;
                    }
                    Tell(channel, Kind::kStarted, row);
                    return Tell(channel, Kind::kCrashed, row);
                  }
                }));
  test.Await();
  std::vector<std::vector<std::string>> told;
  test.TryOthers([&](std::vector<Verdict> verdicts) { told.push_back(ReasonsOf(verdicts)); });
  test.Await();
  EXPECT_THAT(told,
              ElementsAre(ElementsAre("", "failed its self-test: crashed with SIGILL", "", ""),
                          ElementsAre("", "")));
}

TEST_F(SlowRowsTest, EndWhenNobodyWaits) {
  SelfTest test(registry_, OptionsFor([](const Channel& channel, const std::vector<int>& rows) {
                  if (rows.size() == 2) return PassAll(channel, rows);
                  Tell(channel, Kind::kStarted, rows.front());
                  AwaitEnd(channel);
                }));
  test.Await();
  test.TryOthers([](const std::vector<Verdict>&) { FAIL() << "nothing was tried to its end"; });
}

TEST_F(SelfTestTest, SeveralChildrenTryAKernelEach) {
  SelfTest::Options options = OptionsFor([](const Channel& channel, const std::vector<int>& rows) {
    for (const int row : rows) Pass(channel, row);
  });
  options.subjects.front().children = 4;
  const std::vector<Verdict> verdicts = Run(std::move(options));
  EXPECT_THAT(given_,
              ::testing::UnorderedElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(RowsOf(verdicts), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(SelfTestTest, EndsWhenNobodyWaits) {
  SelfTest test(registry_, OptionsFor([](const Channel& channel, const std::vector<int>& rows) {
                  Tell(channel, Kind::kStarted, rows.front());
                  AwaitEnd(channel);
                }));
}

TEST_F(SelfTestTest, RowsWithoutARateTakeThatOfTheirFamily) {
  std::vector<Verdict> verdicts(2);
  verdicts[0].row = 4;
  verdicts[1].row = 5;
  verdicts[0].has_rate = true;
  verdicts[0].rate.fixed_ns = 17;
  ShareRates(registry_, &verdicts);
  EXPECT_FALSE(verdicts[1].has_rate);  // another family
  verdicts[1].row = 4;
  ShareRates(registry_, &verdicts);
  EXPECT_TRUE(verdicts[1].has_rate);
  EXPECT_EQ(verdicts[1].rate.fixed_ns, 17);
}

}  // namespace
}  // namespace warpcall::self_test
