// `warpcall load`: the real binary against a server whose answers the tests decide.
#include <signal.h>

#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMs = 1'000'000;

// The server answers one request after the other, so that one that takes long keeps all others
// waiting.
class LoadTest : public CliTest {
 protected:
  using Answer = std::function<FakeAnswer(int number, const v1::ExecuteRequest& request,
                                          v1::ExecuteResponse* response)>;

  LoadTest() {
    server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
      testing::Merge(R"(
        kernels { name: "gelu" input_names: "x"
                  attributes { name: "axis" default_value { int_value: -1 } } }
        kernels { name: "identity" input_names: "x" }
        kernels { name: "softmax" input_names: "x" })",
                     response);
      return absl::OkStatus();
    });
  }

  // Requests have numbers, from 0 on.
  void SetAnswer(Answer answer) {
    execute_.Set([answer = std::move(answer), number = 0](const v1::ExecuteRequest& request,
                                                          v1::ExecuteResponse* response) mutable {
      return answer(number++, request, response);
    });
  }
  std::vector<std::string> TakeInputs() {
    std::vector<std::string> inputs;
    for (const v1::ExecuteRequest& request : execute_.Take())
      inputs.push_back(request.inputs(0).data());
    return inputs;
  }

  ProgramResult Load(const std::string& arguments, const std::string& err_path = "") {
    return Warpcall("load " + arguments, err_path);
  }
  // Without a warm-up.
  json LoadJson(const std::string& arguments, int exit_status = 0) {
    return WarpcallJson(absl::StrCat("load ", arguments, " --warmup 0"), exit_status);
  }
};

// Holds up all answers.
void Stall(absl::Duration duration) {
  absl::Notification().WaitForNotificationWithTimeout(duration);
}

TEST_F(LoadTest, AClosedLoopSendsExactlyTheRequests) {
  const json result = LoadJson("gelu:8=3,softmax:2x3:bf16 --requests 200 --concurrency 3");
  EXPECT_EQ(server_.executes(), 200);
  const json& all = result["all"];
  EXPECT_EQ(all["sent"], 200);
  EXPECT_EQ(all["ok"], 200);
  EXPECT_EQ(all["failed"], 0);
  EXPECT_EQ(all["statuses"], json({{"OK", {{"count", 200}}}}));
  EXPECT_EQ(all["latency"]["count"], 200);
  EXPECT_EQ(all["retries"], 0);
  EXPECT_NEAR(all["phases"]["kernel"]["p50_ns"].get<double>(), 4000, 40);
  EXPECT_EQ(all["phases"]["kernel"]["max_ns"], 4000);
  EXPECT_EQ(all["phases"]["total"]["max_ns"], 6000);
  const int64_t gelu = result["entries"][0]["ok"];
  const int64_t softmax = result["entries"][1]["ok"];
  EXPECT_EQ(gelu + softmax, 200);
  EXPECT_GT(gelu, softmax);
  EXPECT_GT(softmax, 0);
  EXPECT_EQ(all["input_bytes"], gelu * 8 * 4 + softmax * 6 * 2);
  EXPECT_EQ(all["output_bytes"], all["input_bytes"]);
  EXPECT_EQ(result["entries"][1]["name"], "softmax:2x3:bfloat16");
  EXPECT_EQ(result["entries"][1]["data_type"], "bfloat16");
  EXPECT_EQ(result["entries"][0]["weight"], 3.0);
  EXPECT_EQ(result["request"]["mode"], "closed");
  EXPECT_EQ(result["request"]["concurrency"], 3);
  EXPECT_TRUE(result["lateness"].is_null());
  EXPECT_NEAR(all["requests_per_second"].get<double>() * result["elapsed_ns"].get<double>() * 1e-9,
              200, 1e-6);
}

TEST_F(LoadTest, AnOpenLoopSendsByItsPlan) {
  const json result = LoadJson("gelu:8 --rate 200 --arrivals uniform --requests 100");
  EXPECT_EQ(server_.executes(), 100);
  EXPECT_EQ(result["planned"], 100);
  EXPECT_EQ(result["unsent"], 0);
  EXPECT_EQ(result["all"]["sent"], 100);
  EXPECT_EQ(result["lateness"]["count"], 100);
  EXPECT_GE(result["elapsed_ns"], 99 * 5 * kMs);  // the last is planned then
  EXPECT_EQ(result["request"]["mode"], "open");
  EXPECT_EQ(result["request"]["rate_per_second"], 200.0);
  EXPECT_EQ(result["request"]["arrivals"], "uniform");
}

TEST_F(LoadTest, AStallIsChargedForAllThatShouldHaveComeMeanwhile) {
  SetAnswer([](int number, const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    if (number % 300 == 100) Stall(absl::Milliseconds(200));
    return EchoInputs(request, response);
  });
  // 20 of 300 requests fall into the stall; the third worst of them waits for some 180 ms. A loop
  // that waits before it sends the next sees one slow request, below its p99.
  const json enough = LoadJson("gelu:8 --rate 100 --arrivals uniform --requests 300");
  EXPECT_GE(enough["all"]["latency"]["p99_ns"], 150 * kMs);
  EXPECT_GE(enough["all"]["latency"]["max_ns"], 200 * kMs);

  // A single worker waits out the stall itself: the latencies stay, and now the requests are late.
  const json one = LoadJson("gelu:8 --rate 100 --arrivals uniform --requests 300 --concurrency 1");
  EXPECT_GE(one["all"]["latency"]["p99_ns"], 150 * kMs);
  EXPECT_GE(one["lateness"]["p99_ns"], 140 * kMs);
  EXPECT_GE(one["late"], 10);
  EXPECT_EQ(one["kept_up"], false);
  EXPECT_EQ(one["all"]["sent"], 300);
}

TEST_F(LoadTest, WhatCouldNotBeSentIsSaid) {
  SetAnswer([](int, const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    Stall(absl::Milliseconds(50));
    return EchoInputs(request, response);
  });
  const ProgramResult run =
      Load("gelu:8 --rate 1000 --arrivals uniform --duration 0.5 --warmup 0 --concurrency 2");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("COULD NOT KEEP UP: of 500 planned requests"));
  const json result = LoadJson("gelu:8 --rate 1000 --duration 0.5 --concurrency 2");
  EXPECT_EQ(result["kept_up"], false);
  EXPECT_GE(result["unsent"], 400);
  EXPECT_EQ(result["unsent"].get<int64_t>() + result["all"]["sent"].get<int64_t>(),
            result["planned"].get<int64_t>());
}

TEST_F(LoadTest, RefusalsAreCountedByCodeWithTheirFirstMessage) {
  SetAnswer([](int number, const v1::ExecuteRequest& request,
               v1::ExecuteResponse* response) -> FakeAnswer {
    if (number % 3 == 1)
      return {absl::ResourceExhaustedError(absl::StrCat("full, said number ", number)), "0"};
    if (number % 30 == 2) return {absl::InvalidArgumentError("no"), std::nullopt};
    return EchoInputs(request, response);
  });
  const std::string arguments = "gelu:8 --requests 150";
  const json result = LoadJson(arguments, 1);
  EXPECT_EQ(server_.executes(), 150);  // nothing was tried again
  EXPECT_EQ(result["all"]["statuses"],
            json({{"OK", {{"count", 95}}},
                  {"RESOURCE_EXHAUSTED", {{"count", 50}, {"message", "full, said number 1"}}},
                  {"INVALID_ARGUMENT", {{"count", 5}, {"message", "no"}}}}));
  EXPECT_EQ(result["all"]["failed"], 55);
  EXPECT_EQ(result["all"]["latency"]["count"], 95);
  EXPECT_EQ(result["all"]["failed_latency"]["count"], 55);
  EXPECT_EQ(result["all"]["input_bytes"], 95 * 32);

  const ProgramResult text = Load(absl::StrCat(arguments, " --warmup 0"));
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_THAT(text.out, HasSubstr("full, said number 151"));
  EXPECT_THAT(text.out, HasSubstr("55 failed"));
  const ProgramResult programs = Load(absl::StrCat(arguments, " --warmup 0 --json"));
  EXPECT_EQ(json::parse(Lines(programs.err).back(), nullptr, false)["error"],
            json({{"code", "INVALID_ARGUMENT"},
                  {"message", "55 of 150 requests failed, the first with this code: no"},
                  {"retryable", false},
                  {"retry_after_ms", nullptr},
                  {"request_id", nullptr},
                  {"exit_status", 1}}));
}

TEST_F(LoadTest, RetriesAreTheClientsAndAreCounted) {
  SetAnswer([](int number, const v1::ExecuteRequest& request,
               v1::ExecuteResponse* response) -> FakeAnswer {
    if (number % 4 == 0) return {absl::ResourceExhaustedError("full"), "1"};
    return EchoInputs(request, response);
  });
  const json result = LoadJson("gelu:8 --requests 90 --retry");
  EXPECT_EQ(result["all"]["ok"], 90);
  EXPECT_EQ(result["all"]["retries"], 30);
  EXPECT_EQ(server_.executes(), 120);
}

// Pauses that were asked for are kept, however fast the machine is; how much longer they take is
// its own affair.
TEST_F(LoadTest, AWorkerPausesForAsLongAsTheServerAsks) {
  SetAnswer([](int number, const v1::ExecuteRequest& request,
               v1::ExecuteResponse* response) -> FakeAnswer {
    if (number < 3) return {absl::UnavailableError("the server is draining"), "100"};
    if (number < 6) return {absl::ResourceExhaustedError("full"), "100"};
    return EchoInputs(request, response);
  });
  const std::string arguments = "gelu:8 --requests 10";
  const json result = LoadJson(arguments, 1);
  EXPECT_EQ(result["all"]["statuses"]["UNAVAILABLE"]["count"], 3);
  EXPECT_EQ(result["all"]["statuses"]["RESOURCE_EXHAUSTED"]["count"], 3);
  EXPECT_EQ(result["backoff"]["pauses"], 6);
  EXPECT_GE(result["backoff"]["total_ns"], 6 * 100 * kMs);
  EXPECT_GE(result["elapsed_ns"], 6 * 100 * kMs);
  // Pauses hold up a plan, too: its requests come late then.
  SetAnswer([](int number, const v1::ExecuteRequest& request,
               v1::ExecuteResponse* response) -> FakeAnswer {
    if (number == 0) return {absl::UnavailableError("the server is draining"), "300"};
    return EchoInputs(request, response);
  });
  const ProgramResult text =
      Load(absl::StrCat(arguments, " --rate 1000 --arrivals uniform --concurrency 1 --warmup 0"));
  EXPECT_THAT(text.out, HasSubstr("were busy, or paused after refusals."));
  EXPECT_THAT(text.out, ContainsRegex("1 pause after refusals, [0-9.]+ m?s of all workers"));
}

TEST_F(LoadTest, WithoutAdvicePausesGrowUntilSomethingSucceeds) {
  SetAnswer([](int number, const v1::ExecuteRequest& request,
               v1::ExecuteResponse* response) -> FakeAnswer {
    if (number != 5) return {absl::UnavailableError("gone"), std::nullopt};
    return EchoInputs(request, response);
  });
  // Pauses are 50, 100, 200, 400 and 800 ms, then 50 ms again, each up to a fifth shorter; no pause
  // follows the last failure.
  const json result = LoadJson("gelu:8 --requests 8", 1);
  EXPECT_EQ(result["backoff"]["pauses"], 6);
  EXPECT_GE(result["backoff"]["total_ns"], 1280 * kMs);
  EXPECT_EQ(result["all"]["ok"], 1);
}

TEST_F(LoadTest, WhatWillNeverFitOrIsWrongHoldsUpNothing) {
  SetAnswer([](int number, const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    if (number % 2 == 0) return {absl::ResourceExhaustedError("over max_message_mib"), "-1"};
    return {absl::InvalidArgumentError("no"), std::nullopt};
  });
  const json result = LoadJson("gelu:8 --requests 20", 1);
  EXPECT_EQ(result["backoff"], json({{"pauses", 0}, {"total_ns", 0}}));
}

TEST_F(LoadTest, APauseEndsWithTheRun) {
  SetAnswer([](int, const v1::ExecuteRequest&, v1::ExecuteResponse*) -> FakeAnswer {
    return {absl::UnavailableError("come back in a minute"), "60000"};
  });
  const json result = LoadJson("gelu:8 --duration 0.2 --concurrency 3", 1);
  EXPECT_LE(result["all"]["sent"], 3);
  EXPECT_LT(result["backoff"]["total_ns"], 3 * 30'000 * kMs);
}

TEST_F(LoadTest, DeadlinesEndRequests) {
  // Listing the kernels takes longer than a request may, and is no request.
  server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
    Stall(absl::Milliseconds(200));
    response->add_kernels()->set_name("gelu");
    response->mutable_kernels(0)->add_input_names("x");
    return absl::OkStatus();
  });
  absl::Notification over;
  SetAnswer([&](int, const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    over.WaitForNotification();
    return EchoInputs(request, response);
  });
  const json result = LoadJson("gelu:8 --requests 2 --deadline 0.05", 1);
  over.Notify();
  server_.Stop();  // waits for callers that waited here
  EXPECT_EQ(result["all"]["statuses"]["DEADLINE_EXCEEDED"]["count"], 2);
  EXPECT_GE(result["all"]["failed_latency"]["p50_ns"], 50 * kMs);
  EXPECT_EQ(result["request"]["deadline_ns"], 50 * kMs);
}

TEST_F(LoadTest, ChecksFindWrongAnswers) {
  SetAnswer([](int number, const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    const FakeAnswer answer = EchoInputs(request, response);
    v1::Tensor* output = response->mutable_outputs(0);
    if (number % 10 == 3) (*output->mutable_data())[5] ^= 1;
    if (number % 10 == 7) output->add_shape(1);
    return answer;
  });
  EXPECT_EQ(LoadJson("identity:8 --requests 50")["all"]["ok"], 50);
  json result = LoadJson("identity:8 --requests 50 --check", 1);
  EXPECT_EQ(result["all"]["statuses"]["DATA_LOSS"]["count"], 10);
  EXPECT_THAT(result["all"]["statuses"]["DATA_LOSS"]["message"].get<std::string>(),
              HasSubstr("from byte 5 on"));
  result = LoadJson("gelu:8 --requests 50 --check", 1);  // gelu's data may differ
  EXPECT_EQ(result["all"]["statuses"]["DATA_LOSS"]["count"], 5);
}

TEST_F(LoadTest, TheWarmUpIsNotCounted) {
  const ProgramResult run = Load("gelu:8 --warmup 2 --requests 20 --json");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const json result = json::parse(run.out);
  EXPECT_EQ(result["all"]["sent"], 20);
  EXPECT_GT(result["warmup"]["requests"], 0);
  EXPECT_EQ(result["warmup"]["failed"], 0);
  EXPECT_EQ(server_.executes(), result["warmup"]["requests"].get<int>() + 20);
}

TEST_F(LoadTest, InputsDifferAndComeFromTheSeed) {
  LoadJson("gelu:8 --requests 16 --seed 4");
  const std::vector<std::string> first = TakeInputs();
  LoadJson("gelu:8 --requests 16 --seed 4");
  EXPECT_EQ(TakeInputs(), first);
  LoadJson("gelu:8 --requests 16 --seed 5");
  EXPECT_NE(TakeInputs(), first);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()).size(), 8u);
  EXPECT_THAT(first, Each(Not(std::string(32, '\0'))));
}

TEST_F(LoadTest, AnInterruptEndsTheRunWithItsResult) {
  std::signal(SIGINT, SIG_DFL);  // shells ignore it for background jobs
  const std::string pid_file = folder_.Path("pid");
  for (const char* loop : {"--concurrency 2", "--rate 100 --concurrency 8"}) {
    SetAnswer(
        [&, at = 0](int, const v1::ExecuteRequest& request, v1::ExecuteResponse* response) mutable {
          if (++at == 20) {
            pid_t pid = 0;
            std::ifstream(pid_file) >> pid;
            EXPECT_EQ(pid > 0 ? kill(pid, SIGINT) : -1, 0);
          }
          return EchoInputs(request, response);
        });
    const ProgramResult run = RunProgram(absl::StrCat(
        "echo $$ >", pid_file, "; exec '", testing::ProgramPath("warpcall"), "' load gelu:8 ", loop,
        " --duration 600 --warmup 0 --json --server ", server_.address()));
    EXPECT_EQ(run.exit_status, 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr("interrupted"));
    const json result = json::parse(run.out);
    EXPECT_EQ(result["interrupted"], true);
    EXPECT_GE(result["all"]["sent"], 20);
    EXPECT_LT(result["elapsed_ns"], 60'000 * kMs);
  }
}

TEST_F(LoadTest, ProgressIsALineASecondOnStderr) {
  const std::string err = folder_.Path("err");
  // The tenth answer comes when the line does.
  SetAnswer([&](int number, const v1::ExecuteRequest& request, v1::ExecuteResponse* response) {
    if (number == 9) {
      EXPECT_TRUE(Eventually([&] { return absl::StrContains(ReadFile(err), "s: "); }));
    }
    return EchoInputs(request, response);
  });
  const ProgramResult run = Load("gelu:8 --warmup 0 --requests 20", err);
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.err, ContainsRegex("warpcall: load: [0-9]+ s: [0-9]+ requests/s, p50 "));
  EXPECT_THAT(run.err, HasSubstr(", 0 errors"));
  EXPECT_THAT(run.out, HasSubstr("SERVER'S TIMES"));
}

TEST_F(LoadTest, NothingSentIsNoSuccess) {
  const json result = LoadJson("gelu:8 --rate 0.001 --duration 0.01", 1);
  EXPECT_EQ(result["planned"], 0);
  EXPECT_EQ(server_.executes(), 0);
}

TEST_F(LoadTest, UsageErrorsAreStatusTwo) {
  ExpectUsageErrors({
      {"load ", "required"},
      {"load gelu", "no shape"},
      {"load gelu:8=0", "'0': a weight"},
      {"load gelu:8:f64", "'f64'"},
      {"load gelu --shape 8x", "'8x'"},
      {"load gelu --shape 8 --type f64", "--type"},
      {"load gelu:8 --mix gelu:8", "excludes"},
      {"load gelu:8 --rate 0", "0 is not in the range 0.001 to 1000000"},
      {"load gelu:8 --rate nan", "nan is not in the range"},
      {"load gelu:8 --arrivals uniform", "requires --rate"},
      {"load gelu:8 --rate 1 --arrivals bursty", "bursty"},
      {"load gelu:8 --concurrency 0", "0 is not in the range 1 to 1024"},
      {"load gelu:8,gelu:9,gelu:10,gelu:11,gelu:12 --concurrency 1000", "limit of 4096"},
      {"load gelu:8 --duration 0", "--duration"},
      {"load gelu:8 --duration 1 --requests 1", "excludes"},
      {"load gelu:8 --requests 0", "--requests"},
      {"load gelu:8 --warmup -1", "--warmup"},
      {"load gelu:8 --deadline 0", "--deadline"},
      {"load gelu:8 --attribute axis", "name=value"},
      {"load gelu[axis=x]:8", "an integer"},
      {"load gelu:8 --device", "--device"},
      {"load 'gelu:8*8'", "2 shapes, but gelu takes 1: x"},
      {"load gelu:65536x65536", "at most 4294967295"},
  });
  EXPECT_EQ(server_.executes(), 0);
}

}  // namespace
}  // namespace warpcall::cli
