#include "server/compiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/compiled/program.h"

namespace warpcall {
namespace {

using compiled::AsCompileError;
using compiled::IsCompileError;

using ::testing::HasSubstr;
using ::testing::Not;

// Stands in for the compiler in a process of the test.
absl::StatusOr<std::string> Compile(const std::string& source,
                                    absl::Span<const std::string> options) {
  if (source == "crash") std::abort();
  const bool careful = !options.empty() && options[0] == "--careful";
  if (source == "fragile" && !careful) std::abort();
  if (source == "wrong") return AsCompileError(absl::InternalError("line 7: no such thing"));
  if (source == "lacking") return absl::UnimplementedError("no compiler");
  return absl::StrCat(source, std::string("\0", 1), absl::StrJoin(options, " "), " ", getpid());
}

class CompileProcessesTest : public ::testing::Test {
 protected:
  ~CompileProcessesTest() override {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  // Starts the child by fork, which a program of one thread may do.
  absl::StatusOr<std::unique_ptr<process::Child>> Start() {
    if (!starts_) return absl::ResourceExhaustedError("no process");
    auto sockets = process::MakeSockets(SOCK_STREAM);
    EXPECT_TRUE(sockets.ok());
    const pid_t pid = fork();
    if (pid == 0) {
      close(sockets->first.get());
      ServeCompilations(process::Channel(std::move(sockets->second)), Compile).IgnoreError();
      _exit(0);
    }
    started_.push_back(pid);
    return std::make_unique<process::Child>(process::Channel(std::move(sockets->first)));
  }

  bool starts_ = true;
  std::vector<pid_t> started_;
  CompileProcesses processes_{[this] { return Start(); }, "--careful"};
};

TEST_F(CompileProcessesTest, OneProcessAnswersOneAfterTheOther) {
  for (int i = 0; i < 3; ++i) {
    const auto compiled = processes_.Compile(absl::StrCat("source ", i), {"--a", "--b=c"});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_EQ(started_.size(), 1u);
    EXPECT_EQ(*compiled,
              absl::StrCat("source ", i, std::string("\0", 1), "--a --b=c ", started_[0]));
  }
  const std::string large(10 << 20, 'x');
  EXPECT_EQ(processes_.Compile(large, {})->substr(0, large.size()), large);
  EXPECT_EQ(started_.size(), 1u);
}

TEST_F(CompileProcessesTest, RefusalsComeAsTheyAre) {
  const absl::Status wrong = processes_.Compile("wrong", {}).status();
  EXPECT_EQ(wrong, AsCompileError(absl::InternalError("line 7: no such thing")));
  EXPECT_TRUE(IsCompileError(wrong));
  const absl::Status lacking = processes_.Compile("lacking", {}).status();
  EXPECT_EQ(lacking, absl::UnimplementedError("no compiler"));
  EXPECT_FALSE(IsCompileError(lacking));
  EXPECT_EQ(started_.size(), 1u);
}

TEST_F(CompileProcessesTest, ACrashIsThatProgramsOwnAndTheNextIsCompiled) {
  ASSERT_TRUE(processes_.Compile("fine", {}).ok());
  const absl::Status crashed = processes_.Compile("crash", {}).status();
  EXPECT_EQ(crashed.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(IsCompileError(crashed));
  EXPECT_THAT(std::string(crashed.message()), HasSubstr("process ended"));
  EXPECT_TRUE(processes_.Compile("fine", {}).ok());
}

TEST_F(CompileProcessesTest, WhatCrashesIsCompiledCarefully) {
  const auto compiled = processes_.Compile("fragile", {"--a"});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_THAT(*compiled, HasSubstr("--careful --a"));
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(CompileProcessesTest, OneThatWasEndedWhileItWasIdleIsReplaced) {
  ASSERT_TRUE(processes_.Compile("fine", {}).ok());
  kill(started_[0], SIGKILL);
  waitpid(started_[0], nullptr, 0);
  const auto compiled = processes_.Compile("fine", {});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_THAT(*compiled, Not(HasSubstr("--careful")));
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(CompileProcessesTest, WhereNoneStartsThatIsSaid) {
  starts_ = false;
  EXPECT_EQ(processes_.Compile("fine", {}).status(), absl::ResourceExhaustedError("no process"));
}

}  // namespace
}  // namespace warpcall
