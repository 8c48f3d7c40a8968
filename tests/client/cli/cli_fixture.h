// The command line as users run it: the real binary, its exit status, its output and files, against
// a server whose answers the test decides.
#pragma once

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "tests/client/fake_server.h"
#include "tests/e2e/eventually.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"
#include "warpcall/npy.h"

namespace warpcall::cli {

using nlohmann::json;
using warpcall::testing::EchoInputs;
using warpcall::testing::Eventually;
using warpcall::testing::FakeAnswer;
using warpcall::testing::ProgramResult;
using warpcall::testing::ReadFile;
using warpcall::testing::RunProgram;
using warpcall::testing::Text;

// Answers calls of one method, one after the other, as the test says at the time.
template <typename Request, typename Response>
class Script {
 public:
  using Handler = std::function<FakeAnswer(const Request&, Response*)>;

  explicit Script(Handler answer) : answer_(std::move(answer)) {}

  FakeAnswer operator()(const Request& request, Response* response) {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(request);
    return answer_(request, response);
  }
  void Set(Handler answer) {
    absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }
  void Refuse(const absl::Status& status) {
    Set([status](const Request&, Response*) { return FakeAnswer{status, std::nullopt}; });
  }
  // Returns the requests since the last call, and forgets them.
  std::vector<Request> Take() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(requests_, {});
  }
  // Returns the text of the only request since the last call.
  std::string TakeText() {
    const std::vector<Request> requests = Take();
    EXPECT_EQ(requests.size(), 1u);
    return requests.empty() ? "" : Text(requests.front());
  }

 private:
  absl::Mutex mutex_;
  Handler answer_ ABSL_GUARDED_BY(mutex_);
  std::vector<Request> requests_ ABSL_GUARDED_BY(mutex_);
};

class CliTest : public ::testing::Test {
 protected:
  CliTest() {
    EXPECT_TRUE(client::WriteNpy(x_, client::Tensor::FromFloats({2, 2}, {1, 2, 3, 4})).ok());
  }

  // Drops progress lines from stderr, since they depend on how busy the machine is, and leaves room
  // for the widest table. Runs in braces, so that `arguments` may have redirections, and pipes
  // behind them.
  ProgramResult Warpcall(const std::string& arguments, const std::string& err_path = "") {
    return Shell(absl::StrCat("{ '", testing::ProgramPath("warpcall"), "' ", arguments, "; }"),
                 err_path);
  }
  ProgramResult Shell(const std::string& script, const std::string& err_path = "") {
    ProgramResult run = RunProgram(
        absl::StrCat("export COLUMNS=200 WARPCALL_SERVER=", server_.address(), "; ", script),
        err_path);
    std::string err;
    for (const absl::string_view line : absl::StrSplit(run.err, '\n'))
      if (!absl::EndsWith(line, " s so far")) absl::StrAppend(&err, err.empty() ? "" : "\n", line);
    run.err = std::move(err);
    return run;
  }
  // Returns the output with --json.
  json WarpcallJson(const std::string& arguments, int exit_status = 0) {
    const ProgramResult run = Warpcall(arguments + " --json");
    EXPECT_EQ(run.exit_status, exit_status) << run.err << run.out;
    json result = json::parse(run.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(result.is_object()) << run.err << run.out;
    return result;
  }

  // Each line of arguments ends with status 2, says this on stderr, and prints nothing else.
  void ExpectUsageErrors(absl::Span<const std::pair<std::string, std::string>> lines) {
    for (const auto& [line, message] : lines) {
      const ProgramResult run = Warpcall(line);
      EXPECT_EQ(run.exit_status, 2) << line;
      EXPECT_EQ(run.out, "") << line;
      EXPECT_THAT(run.err, ::testing::HasSubstr(message)) << line;
    }
  }
  // It ends with status 1 and prints this on stderr, and nothing else.
  void ExpectRefused(const std::string& line, const std::string& message) {
    const ProgramResult run = Warpcall(line);
    EXPECT_EQ(run.exit_status, 1) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_EQ(run.err, message) << line;
  }
  // Without a server it says so, with status 1.
  void ExpectUnavailable(absl::Span<const std::string> lines) {
    server_.Stop();
    for (const std::string& line : lines) {
      const ProgramResult run = Warpcall(line);
      EXPECT_EQ(run.exit_status, 1) << line;
      EXPECT_THAT(run.out + run.err, ::testing::AnyOf(::testing::HasSubstr("UNAVAILABLE: "),
                                                      ::testing::HasSubstr("DEADLINE_EXCEEDED: ")));
    }
  }

  // Softmax of x with an axis, and matmul of a and b with transpose_b.
  void ListSoftmaxAndMatmul() {
    server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
      testing::Merge(R"(
        kernels { name: "softmax" input_names: "x"
                  attributes { name: "axis" default_value { int_value: -1 } } }
        kernels { name: "matmul" input_names: "a" input_names: "b"
                  attributes { name: "transpose_b" default_value { bool_value: false } } })",
                     response);
      return absl::OkStatus();
    });
  }

  const testing::TempFolder folder_;
  const std::string x_ = folder_.Path("x.npy");  // 2x2: 1, 2, 3, 4
  Script<v1::ExecuteRequest, v1::ExecuteResponse> execute_{EchoInputs};
  testing::FakeServer server_{std::ref(execute_)};
};

inline std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

}  // namespace warpcall::cli
