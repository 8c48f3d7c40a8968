// The real program as a compiler: confined before it gets a source, and ended after a foreign one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiled/nvrtc.h"
#include "kernels/compiled/program.h"
#include "server/compile/compiling.h"
#include "server/compile/foreign_compiler.h"
#include "server/process/parent.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using compiled::CudaCode;
using compiled::IsCompileError;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CompilerProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
      GTEST_SKIP() << "this kernel has no Landlock";
  }
  ~CompilerProcessTest() override {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  absl::StatusOr<std::unique_ptr<process::Child>> Start(const process::RoleFlags& flags) {
    auto sockets = process::MakeSockets(SOCK_STREAM);
    EXPECT_TRUE(sockets.ok());
    std::vector<std::string> words = ToWords(flags);
    words.insert(words.begin(), testing::ProgramPath("warpcalld"));
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(sockets->second.get(), process::kInheritedFirst);
      closefrom(process::kInheritedNext);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    return std::make_unique<process::Child>(process::Channel(std::move(sockets->first)));
  }

  absl::StatusOr<CudaCode> CompileForeignly(const compiled::ForeignSource& source) {
    return CompileForeign(source, {.start = [this] {
                            return Start({.role = process::Role::kCompiler, .foreign = true});
                          }});
  }

  // Waits until the process is confined; "" if that takes 20 s.
  std::string ConfinedStatus() const {
    for (const int64_t end_ns = MonotonicNs() + 20'000'000'000; MonotonicNs() < end_ns;) {
      std::string status = testing::ReadFile(absl::StrCat("/proc/", pid_, "/status"));
      if (absl::StrContains(status, "Seccomp:\t2")) return status;
      std::this_thread::yield();
    }
    return "";
  }

  pid_t pid_ = 0;
};

TEST_F(CompilerProcessTest, AForeignOneIsConfinedAndLimited) {
  const auto child = Start({.role = process::Role::kCompiler, .foreign = true});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT(ConfinedStatus(), HasSubstr("NoNewPrivs:\t1"));
  const std::string limits = testing::ReadFile(absl::StrCat("/proc/", pid_, "/limits"));
  EXPECT_THAT(limits, ::testing::ContainsRegex("Max cpu time +60 "));
  EXPECT_THAT(limits, ::testing::ContainsRegex("Max file size +0 +0 "));
  EXPECT_THAT(limits, ::testing::ContainsRegex("Max core file size +0 +0 "));
  if (testing::ProgramsAreSanitized()) return;
  EXPECT_THAT(limits, ::testing::ContainsRegex("Max address space +4294967296 +4294967296 "));
}

TEST_F(CompilerProcessTest, AForeignOneEndsWithItsStarterThoughItIsStopped) {
  absl::StatusOr<std::unique_ptr<process::Child>> child = absl::UnknownError("");
  std::thread([&] {
    child = Start({.role = process::Role::kCompiler, .foreign = true});
    EXPECT_NE(ConfinedStatus(), "");
    kill(pid_, SIGSTOP);
  }).join();
  int status = 0;
  const int64_t end_ns = MonotonicNs() + 20'000'000'000;
  while (waitpid(pid_, &status, WNOHANG) == 0 && MonotonicNs() < end_ns) std::this_thread::yield();
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  pid_ = 0;
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(CompilerProcessTest, OneOfOurOwnProgramsIsConfinedAndStays) {
  auto child = Start({.role = process::Role::kCompiler});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT(ConfinedStatus(), HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(testing::ReadFile(absl::StrCat("/proc/", pid_, "/limits")),
              ::testing::ContainsRegex("Max cpu time +unlimited "));
  CompileProcesses processes([&] { return std::move(*child); });
  for (int i = 0; i < 2; ++i) {
    const auto code = processes.Compile(
        {.text = "extern \"C\" __global__ void f() {}", .options = {"--gpu-architecture=sm_90a"}});
    EXPECT_EQ(code.status(), compiled::LoadNvrtc().status());
  }
  EXPECT_EQ(waitpid(pid_, nullptr, WNOHANG), 0);
}

TEST_F(CompilerProcessTest, CompilesOneForeignSourceAndEnds) {
  const auto code = CompileForeignly({.name = "mine",
                                      .source = "__global__ void f(T* y) { *y = 1; }",
                                      .entries = {"f"},
                                      .arch = "sm_90a"});
  if (compiled::LoadNvrtc().ok()) {
    ASSERT_TRUE(code.ok()) << code.status();
    EXPECT_EQ(code->kernels, std::vector<std::string>{"_Z1fPf"});
  } else {
    EXPECT_TRUE(absl::IsUnimplemented(code.status())) << code.status();
  }
  int status = 1;
  EXPECT_EQ(waitpid(std::exchange(pid_, 0), &status, 0) > 0, true);
  // 1 where it sees the channel's end before its own.
  EXPECT_TRUE(WIFEXITED(status)) << status;
}

// An author waits for no more than 150 ms, the start of the process included.
TEST_F(CompilerProcessTest, ACompileErrorTakesAMoment) {
  if (!compiled::LoadNvrtc().ok()) GTEST_SKIP() << compiled::LoadNvrtc().status();
  std::vector<int64_t> took_us;
  for (int i = 0; i < 9; ++i) {
    const int64_t start_ns = MonotonicNs();
    const auto code =
        CompileForeignly({.name = "mine", .source = "\nint x = y;", .arch = "sm_90a"});
    took_us.push_back((MonotonicNs() - start_ns) / 1000);
    EXPECT_TRUE(IsCompileError(code.status())) << code.status();
    EXPECT_THAT(std::string(code.status().message()), StartsWith("mine.cu(2): error: "));
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  std::sort(took_us.begin(), took_us.end());
  RecordProperty("median_us", std::to_string(took_us[took_us.size() / 2]));
  if (!testing::LatenciesAreCompared()) return;
  EXPECT_LE(took_us[took_us.size() / 2], 150'000);
}

}  // namespace
}  // namespace warpcall
