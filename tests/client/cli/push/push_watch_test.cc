// `warpcall push --watch`.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>

#include "tests/client/cli/push/push_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PushWatchTest : public PushCliTest {
 protected:
  // Each save adds a line, so that every push has other code.
  void Save(const std::string& line) { WriteText(cu_, absl::StrCat(kCode, "// ", line, "\n")); }
  // As editors do: a new file in the place of the old one.
  void SaveByRename(const std::string& line) {
    WriteText(cu_ + ".tmp", absl::StrCat(kCode, "// ", line, "\n"));
    ASSERT_EQ(std::rename((cu_ + ".tmp").c_str(), cu_.c_str()), 0);
  }
  bool Pushed(const std::string& line) {
    return Eventually([&] {
      for (const v1::PushRequest& request : TakeRequests())
        if (absl::StrContains(request.code(), line)) return true;
      return false;
    });
  }
  bool Watches(size_t times) {
    return Eventually([&] {
      size_t found = 0;
      for (const std::string& line : Lines(ReadFile(err_)))
        found += absl::StrContains(line, "; Ctrl-C ends") ? 1 : 0;
      return found >= times;
    });
  }
};

TEST_F(PushWatchTest, EverySaveIsPushedAndCtrlCEndsWithTheLastVerdict) {
  testing::ChildProcess run = Start("--watch");
  ASSERT_TRUE(Watches(1)) << ReadFile(err_);
  Save("second");
  EXPECT_TRUE(Pushed("second"));
  ASSERT_TRUE(Watches(2)) << ReadFile(err_);
  WriteText(folder_.Path("other.cu"), "not watched");
  AnswerEvents({"verdict { status: 'COMPILE_ERROR' reason: 'line 3' }"});
  SaveByRename("third");
  EXPECT_TRUE(Pushed("third"));
  ASSERT_TRUE(Watches(3)) << ReadFile(err_);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 3);
  EXPECT_EQ(requests(), 0u);
  EXPECT_THAT(ReadFile(out_), HasSubstr("\nCOMPILE_ERROR: line 3"));
}

TEST_F(PushWatchTest, ASaveEndsThePushThatRuns) {
  std::atomic<int> cancelled{0};
  Answer([&](const PushStreamCall& call) {
    if (!absl::StrContains(call.request.code(), "second")) {
      WriteEvent(kGoodEvents[1], call);
      if (Eventually(call.cancelled)) cancelled.fetch_add(1);
      return FakeAnswer{};
    }
    return PassEvents(call);
  });
  testing::ChildProcess run = Start("--watch --json");
  ASSERT_TRUE(Eventually([&] { return requests() == 1; }));
  Save("second");
  ASSERT_TRUE(Watches(1)) << ReadFile(err_);
  EXPECT_TRUE(Eventually([&] { return cancelled.load() == 1; }));
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 0);
  // The push that was given up has no report.
  EXPECT_EQ(json::parse(ReadFile(out_), nullptr, false)["status"], "PASSED");
  EXPECT_THAT(ReadFile(err_), Not(HasSubstr("CANCELLED")));
}

TEST_F(PushWatchTest, CtrlCInAPushKeepsTheVerdictBefore) {
  AnswerEvents({"verdict { status: 'NOT_SUPPORTED' reason: 'no GPU' }"});
  testing::ChildProcess run = Start("--watch");
  ASSERT_TRUE(Watches(1)) << ReadFile(err_);
  TakeRequests();
  Answer([](const PushStreamCall& call) {
    Eventually(call.cancelled);
    return FakeAnswer{};
  });
  Save("second");
  ASSERT_TRUE(Pushed("second"));
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 4);
}

TEST_F(PushWatchTest, CtrlCBeforeAnyVerdictIsASignals) {
  Answer([](const PushStreamCall& call) {
    WriteEvent(kGoodEvents[1], call);
    Eventually(call.cancelled);
    return FakeAnswer{};
  });
  testing::ChildProcess run = Start("--watch");
  ASSERT_TRUE(Says(err_, "1 s so far")) << ReadFile(err_);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 130);
}

TEST_F(PushWatchTest, MistakesAndRefusalsAreWaitedOut) {
  WriteText(cu_, "");
  const std::string manifest = folder_.Path("m.json");
  WriteText(manifest, "{}");
  testing::ChildProcess run = Start("--watch --manifest " + manifest);
  ASSERT_TRUE(Says(err_, "my.cu is empty")) << ReadFile(err_);
  ASSERT_TRUE(Watches(1)) << ReadFile(err_);
  Save("second");
  EXPECT_TRUE(Pushed("second"));
  ASSERT_TRUE(Watches(2)) << ReadFile(err_);
  Answer([](const PushStreamCall&) {
    return FakeAnswer{absl::ResourceExhaustedError("64 pushes; limit 64"), "-1"};
  });
  WriteText(manifest, "{\"name\": \"new\"}");
  ASSERT_TRUE(Says(err_, "64 pushes; limit 64")) << ReadFile(err_);
  ASSERT_TRUE(Watches(3)) << ReadFile(err_);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 1);
}

}  // namespace
}  // namespace warpcall::cli
