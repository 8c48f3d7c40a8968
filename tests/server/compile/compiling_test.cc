#include "server/compile/compiling.h"

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
using compiled::CudaCode;
using compiled::CudaSource;
using compiled::IsCompileError;

using ::testing::HasSubstr;
using ::testing::Not;

// Stands in for the compiler in a process of the test.
absl::StatusOr<CudaCode> Compile(const CudaSource& source) {
  if (source.text == "crash") std::abort();
  const bool careful = !source.options.empty() && source.options[0] == "--careful";
  if (source.text == "fragile" && !careful) std::abort();
  if (source.text == "wrong") return AsCompileError(absl::InternalError("line 7: no such thing"));
  if (source.text == "lacking") return absl::UnimplementedError("no compiler");
  CudaCode code;
  code.cubin = absl::StrCat(source.text, std::string("\0", 1), absl::StrJoin(source.options, " "));
  code.ptx = source.with_ptx ? source.file : "";
  code.log = absl::StrCat(getpid());
  code.kernels = source.entries;
  return code;
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
    const std::string text = absl::StrCat("source ", i);
    const auto compiled = processes_.Compile({.text = text,
                                              .options = {"--a", "--b=c"},
                                              .file = "name.cu",
                                              .entries = {"scale", "norm<T>"},
                                              .with_ptx = i == 1});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    ASSERT_EQ(started_.size(), 1u);
    EXPECT_EQ(*compiled, (CudaCode{.cubin = text + std::string("\0", 1) + "--a --b=c",
                                   .ptx = i == 1 ? "name.cu" : "",
                                   .log = absl::StrCat(started_[0]),
                                   .kernels = {"scale", "norm<T>"}}));
  }
  const std::string large(10 << 20, 'x');
  EXPECT_EQ(processes_.Compile({large})->cubin.substr(0, large.size()), large);
  EXPECT_EQ(started_.size(), 1u);
}

TEST_F(CompileProcessesTest, RefusalsComeAsTheyAre) {
  const absl::Status wrong = processes_.Compile({"wrong"}).status();
  EXPECT_EQ(wrong, AsCompileError(absl::InternalError("line 7: no such thing")));
  EXPECT_TRUE(IsCompileError(wrong));
  const absl::Status lacking = processes_.Compile({"lacking"}).status();
  EXPECT_EQ(lacking, absl::UnimplementedError("no compiler"));
  EXPECT_FALSE(IsCompileError(lacking));
  EXPECT_EQ(started_.size(), 1u);
}

TEST_F(CompileProcessesTest, ACrashIsThatProgramsOwnAndTheNextIsCompiled) {
  ASSERT_TRUE(processes_.Compile({"fine"}).ok());
  const absl::Status crashed = processes_.Compile({"crash"}).status();
  EXPECT_EQ(crashed.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(IsCompileError(crashed));
  EXPECT_THAT(std::string(crashed.message()), HasSubstr("process ended"));
  EXPECT_TRUE(processes_.Compile({"fine"}).ok());
}

TEST_F(CompileProcessesTest, WhatCrashesIsCompiledCarefully) {
  const auto compiled = processes_.Compile({"fragile", {"--a"}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_THAT(compiled->cubin, HasSubstr("--careful --a"));
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(CompileProcessesTest, OneThatWasEndedWhileItWasIdleIsReplaced) {
  ASSERT_TRUE(processes_.Compile({"fine"}).ok());
  kill(started_[0], SIGKILL);
  waitpid(started_[0], nullptr, 0);
  const auto compiled = processes_.Compile({"fine"});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_THAT(compiled->cubin, Not(HasSubstr("--careful")));
  EXPECT_EQ(started_.size(), 2u);
}

TEST_F(CompileProcessesTest, WhereNoneStartsThatIsSaid) {
  starts_ = false;
  EXPECT_EQ(processes_.Compile({"fine"}).status(), absl::ResourceExhaustedError("no process"));
}

}  // namespace
}  // namespace warpcall
