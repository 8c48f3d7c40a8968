// `warpcall tune` as its users have it.
#include <csignal>
#include <functional>
#include <string>

#include "absl/synchronization/notification.h"
#include "tests/client/cli/bench/bench_fixture.h"
#include "tests/e2e/child_process.h"

namespace warpcall::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

FakeAnswer FastIsServed(const v1::DescribeRequest&, v1::DescribeResponse* response) {
  testing::Merge(R"(implementation: "fast_row" device: "cpu"
                    chosen_because: "tuned: fast_row 1 us, middle_row 2.5 us")",
                 response);
  return {};
}

class TuneCliTest : public BenchCliTest {
 protected:
  TuneCliTest() {
    server_.AnswerTune(std::ref(tune_));
    server_.AnswerDescribe(std::ref(describe_));
  }

  Script<v1::BenchmarkRequest, v1::BenchmarkResponse> tune_{FourRows};
  Script<v1::DescribeRequest, v1::DescribeResponse> describe_{FastIsServed};
};

TEST_F(TuneCliTest, TunesWhatTheCommandLineSaysAndSaysWhatRuns) {
  const auto run = Warpcall(
      "tune softmax --shape 64x128 --type bf16 --implementation cpu --attribute axis=0"
      " --device cpu --iterations 50 --warmup 5 --seed 9 --max-noise 0.5 --timeout 2");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(tune_.TakeText(),
            "kernel: \"softmax\" implementations: \"cpu\""
            " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 64 shape: 128 }"
            " attributes { key: \"axis\" value { int_value: 0 } }"
            " device: \"cpu\" warmup_iterations: 5 iterations: 50 seed: 9 max_noise: 0.005"
            " timeout_ns: 2000000000");
  EXPECT_EQ(describe_.TakeText(),
            "kernel: \"softmax\" inputs { data_type: DATA_TYPE_BFLOAT16 shape: 64 shape: 128 }"
            " attributes { key: \"axis\" value { int_value: 0 } } device: \"cpu\"");
  EXPECT_THAT(benchmark_.Take(), SizeIs(0));
  EXPECT_THAT(run.out, HasSubstr("fast_row"));
  EXPECT_THAT(run.out, HasSubstr("\nauto runs fast_row, tuned: fast_row 1 us, middle_row 2.5 us\n"
                                 "only what --implementation names was timed; "));
  EXPECT_THAT(Warpcall("tune softmax --shape 64x128").out, Not(HasSubstr("--implementation")));
}

TEST_F(TuneCliTest, EachShapeIsTunedByItself) {
  const json report = WarpcallJson("tune softmax --shape '{16,32}x8' --type f32 --type f16");
  EXPECT_THAT(tune_.Take(), SizeIs(4));
  ASSERT_EQ(report["points"].size(), 4u);
  for (const json& point : report["points"]) {
    EXPECT_EQ(point["auto"]["implementation"], "fast_row");
    EXPECT_THAT(point["auto"]["chosen_because"], HasSubstr("tuned"));
    EXPECT_EQ(point["results"].size(), 4u);
  }
  // Which of a benchmark nobody asked for.
  EXPECT_FALSE(WarpcallJson("bench softmax --shape 8")["points"][0].contains("auto"));
}

TEST_F(TuneCliTest, WhatWasTunedIsShownWhenTheServerDoesNotSayWhatRuns) {
  describe_.Refuse(absl::ResourceExhaustedError("8 wait"));
  const auto run = Warpcall("tune softmax --shape 8");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("middle_row"));
  EXPECT_THAT(run.out, Not(HasSubstr("auto runs")));
  EXPECT_TRUE(WarpcallJson("tune softmax --shape 8")["points"][0]["auto"].is_null());
}

TEST_F(TuneCliTest, CtrlCEndsTheCallUnderWayAndKeepsWhatWasTuned) {
  absl::Notification second, over;
  int calls = 0;
  tune_.Set([&](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    if (++calls == 2) {
      second.Notify();
      over.WaitForNotification();
    }
    return FourRows(request, response);
  });
  testing::ChildProcess run(
      {"/bin/sh", "-c",
       absl::StrCat("WARPCALL_SERVER=", server_.address(), " exec '",
                    testing::ProgramPath("warpcall"), "' tune softmax --shape '{8,16,24}x32' >",
                    folder_.Path("out"))},
      folder_.Path("err"));
  second.WaitForNotification();
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 130) << ReadFile(folder_.Path("err"));
  over.Notify();
  server_.Stop();  // waits for callers that waited here
  EXPECT_THAT(ReadFile(folder_.Path("err")),
              HasSubstr("tune: interrupted; what was measured is kept"));
  EXPECT_THAT(
      ReadFile(folder_.Path("out")),
      ::testing::AllOf(HasSubstr("\n8x32 float32 on cpu: "), HasSubstr("auto runs fast_row"),
                       HasSubstr("\n16x32 float32: not measured: interrupted\n"),
                       HasSubstr("\n24x32 float32: not measured: interrupted\n")));
}

TEST_F(TuneCliTest, ARefusalIsSaidAndEndsWithStatus1) {
  tune_.Refuse(absl::InvalidArgumentError("kernel softmax has no definition"));
  const auto run = Warpcall("tune softmax --shape 8");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("refused: INVALID_ARGUMENT: kernel softmax has no definition"));
  EXPECT_THAT(describe_.Take(), SizeIs(0));
  ExpectUsageErrors({{"tune", "kernel"}, {"tune softmax", "--shape or --input is required"}});
}

}  // namespace
}  // namespace warpcall::cli
