// `warpcall bench` during a run, and with runs that end early.
#include <atomic>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/cli/bench/bench_fixture.h"
#include "tests/e2e/child_process.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using testing::BenchmarkStreamCall;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

void WriteRow(const std::string& implementation, double median_ns,
              const BenchmarkStreamCall& call) {
  v1::BenchmarkResponse response;
  AddResult(implementation, median_ns, &response);
  call.writer->Write(response);
}

void WriteEnd(const BenchmarkStreamCall& call) {
  v1::BenchmarkResponse response;
  testing::Merge(R"(device: "cpu" ceiling_bytes_per_second: 2.5e10)", &response);
  call.writer->Write(response);
}

class BenchStreamTest : public BenchCliTest {
 protected:
  // The command without "--json" and the like; its
  // output files have the same paths each time.
  std::string Command(const std::string& arguments) {
    return absl::StrCat("bench softmax --csv ", csv_, " --plot ", plot_, " ", arguments);
  }
  // Starts it with stdout in out_ and stderr in err_.
  testing::ChildProcess Start(const std::string& arguments) {
    return StartLine(Command(arguments));
  }
  testing::ChildProcess StartLine(const std::string& line) {
    return testing::ChildProcess(
        {"/bin/sh", "-c",
         absl::StrCat("WARPCALL_SERVER=", server_.address(), " exec '",
                      testing::ProgramPath("warpcall"), "' ", line, " >", out_)},
        err_);
  }
  bool Says(const std::string& path, const std::string& text) {
    return Eventually([&] { return absl::StrContains(ReadFile(path), text); });
  }
  // Expects whole files with these rows.
  void ExpectFiles(const std::vector<std::string>& rows) {
    const std::vector<std::string> lines = Lines(ReadFile(csv_));
    for (const std::string& row : rows) {
      EXPECT_THAT(lines, ::testing::Contains(HasSubstr("," + row + ",")));
      EXPECT_THAT(ReadFile(plot_), HasSubstr(">" + row + "</text>"));
    }
    EXPECT_EQ(RunProgram(absl::StrCat("python3 -c 'import sys, xml.dom.minidom as x; "
                                      "x.parse(sys.argv[1])' ",
                                      plot_))
                  .exit_status,
              0);
    EXPECT_THAT(folder_.Names(), Not(::testing::Contains(::testing::EndsWith(".part"))));
  }

  const std::string csv_ = folder_.Path("bench.csv");
  const std::string plot_ = folder_.Path("bench.svg");
  const std::string out_ = folder_.Path("out");
  const std::string err_ = folder_.Path("err");
};

TEST_F(BenchStreamTest, RowsAreToldAsTheyComeAndPointsShownWhenTheyAreDone) {
  std::atomic<bool> row_told{false}, point_shown{false};
  std::atomic<int> calls{0};
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    if (calls.fetch_add(1) == 0) {
      WriteRow("fast_row", 1000, call);
      row_told = Says(err_, "point 1 of 2: fast_row 1.00 us, noise 0.8%, ");
    } else {
      point_shown = Says(out_, "\n8x32 float32 on cpu: ") && Says(out_, "slow_row");
    }
    WriteRow("slow_row", 4000, call);
    WriteEnd(call);
    return FakeAnswer{};
  });
  testing::ChildProcess run = Start("--shape '{8,16}x32'");
  EXPECT_EQ(run.Wait(), 0) << ReadFile(err_);
  EXPECT_TRUE(row_told.load()) << ReadFile(err_);
  EXPECT_TRUE(point_shown.load()) << ReadFile(out_);
  EXPECT_THAT(ReadFile(out_), HasSubstr("\n16x32 float32 on cpu: "));
  ExpectFiles({"fast_row", "slow_row"});
}

// Rows as a busy machine brings them: the first is too noisy to have a rank before the second is
// known, and faster than that beyond doubt.
TEST_F(BenchStreamTest, RanksAreThoseOfTheLastResponse) {
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    v1::BenchmarkResponse noisy;
    AddResult("noisy_row", 1000, &noisy);
    noisy.mutable_results(0)->set_unstable(true);
    call.writer->Write(noisy);
    WriteRow("float64", 4000, call);
    v1::BenchmarkResponse last;
    testing::Merge(R"(device: "cpu" ceiling_bytes_per_second: 2.5e10
                      verdicts { key: "noisy_row" value: "fastest" }
                      verdicts { key: "float64" value: "slower by 300 %" })",
                   &last);
    call.writer->Write(last);
    return FakeAnswer{};
  });
  const auto run = Warpcall(Command("--shape 8x32"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_GE(lines.size(), 2u) << run.out;
  const size_t first = lines.size() - 2;
  EXPECT_THAT(lines[first],
              AllOf(::testing::StartsWith("noisy_row "), ::testing::EndsWith(" 1.00")));
  EXPECT_THAT(lines[first + 1],
              AllOf(::testing::StartsWith("float64 "), ::testing::EndsWith(" 4.00")));
  const std::vector<std::string> csv = Lines(ReadFile(csv_));
  ASSERT_THAT(csv, SizeIs(3));
  EXPECT_THAT(csv[1], AllOf(HasSubstr(",noisy_row,"), HasSubstr(",true,fastest,")));
  EXPECT_THAT(csv[2], AllOf(HasSubstr(",float64,"), HasSubstr(",false,slower by 300 %,")));
  const std::string plot = ReadFile(plot_);
  EXPECT_LT(plot.find(">noisy_row</text>"), plot.find(">float64</text>"));
  const json results = WarpcallJson("bench softmax --shape 8x32")["points"][0]["results"];
  EXPECT_EQ(results[0]["verdict"], "fastest");
  EXPECT_EQ(results[1]["verdict"], "slower by 300 %");
}

TEST_F(BenchStreamTest, CtrlCKeepsWhatWasMeasured) {
  std::atomic<int> cancelled{0};
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    WriteRow("fast_row", 1000, call);
    WriteRow("slow_row", 4000, call);
    if (Eventually(call.cancelled)) cancelled.fetch_add(1);
    return FakeAnswer{};
  });
  int runs = 0;
  for (const auto& [signal, status] : {std::pair(SIGINT, 130), {SIGTERM, 143}}) {
    testing::ChildProcess run = Start("--shape '{8,16,24}x32'");
    ASSERT_TRUE(Says(err_, "slow_row")) << ReadFile(err_);
    run.Signal(signal);
    EXPECT_EQ(run.Wait(), status) << ReadFile(err_);
    ++runs;
    EXPECT_TRUE(Eventually([&] { return cancelled.load() == runs; }));
    const std::string out = ReadFile(out_);
    // None is the best of rows that are not all known.
    EXPECT_THAT(out, ::testing::ContainsRegex("\nfast_row .* -\nslow_row .* -\n"));
    EXPECT_THAT(out, AllOf(HasSubstr("\nnot all rows were measured: CANCELLED: interrupted\n"),
                           HasSubstr("\n16x32 float32: not measured: interrupted\n"),
                           HasSubstr("\n24x32 float32: not measured: interrupted\n")));
    ExpectFiles({"fast_row", "slow_row"});
    EXPECT_THAT(ReadFile(csv_), HasSubstr(",16x32,float32,,,,,CANCELLED: not measured:"));
  }
}

TEST_F(BenchStreamTest, CtrlCLeavesJsonWhole) {
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    WriteRow("fast_row", 1000, call);
    Eventually(call.cancelled);
    return FakeAnswer{};
  });
  testing::ChildProcess run = Start("--json --shape '{8,16}x32'");
  ASSERT_TRUE(Says(err_, "fast_row")) << ReadFile(err_);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 130);
  const json value = json::parse(ReadFile(out_), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(value.is_object()) << ReadFile(out_);
  const json& points = value["points"];
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0]["error"]["code"], "CANCELLED");
  EXPECT_EQ(points[0]["results"][0]["median_ns"], 1000);
  EXPECT_EQ(points[1]["error"]["message"], "not measured: interrupted");
  EXPECT_EQ(points[1]["results"], json::array());
  EXPECT_EQ(json::parse(Lines(ReadFile(err_)).back(), nullptr, false)["error"],
            json({{"code", "CANCELLED"},
                  {"message", absl::StrCat("interrupted by signal ", SIGINT)},
                  {"retryable", false},
                  {"retry_after_ms", nullptr},
                  {"request_id", nullptr},
                  {"exit_status", 130}}));
}

TEST_F(BenchStreamTest, AServerThatDiesEndsTheSweepAndKeepsWhatCame) {
  std::atomic<int> calls{0};
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    calls.fetch_add(1);
    WriteRow("fast_row", 1000, call);
    server_.SetServing(false);
    return FakeAnswer{absl::UnavailableError("socket closed"), std::nullopt};
  });
  const auto run = Warpcall(Command("--shape '{8,16,24}x32'"));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(calls.load(), 1);
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("\nfast_row "),
                    HasSubstr("\nnot all rows were measured: UNAVAILABLE: socket closed\n"),
                    HasSubstr("\n24x32 float32: not measured: the server is gone\n")));
  ExpectFiles({"fast_row"});
}

TEST_F(BenchStreamTest, ADeviceThatIsLostTakesItsOwnPointsOnly) {
  std::atomic<int> lost{0};
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    if (call.request.device() == "cuda:0") {
      lost.fetch_add(1);
      return FakeAnswer{absl::UnavailableError("cuda:0: the device was lost"), "-1"};
    }
    WriteRow("fast_row", 1000, call);
    WriteEnd(call);
    return FakeAnswer{};
  });
  const auto run = Warpcall(Command("--shape '{8,16}x32' --device cuda:0,cpu"));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(lost.load(), 1);
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("\n8x32 float32 on cuda:0: refused: UNAVAILABLE: cuda:0: the "
                              "device was lost\n"),
                    HasSubstr("\n16x32 float32 on cuda:0: not measured: cuda:0 is "
                              "unavailable\n"),
                    HasSubstr("\n8x32 float32 on cpu: "), HasSubstr("\n16x32 float32 on cpu: ")));
}

TEST_F(BenchStreamTest, CtrlCSaysWhatCouldNotBeWritten) {
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    WriteRow("fast_row", 1000, call);
    Eventually(call.cancelled);
    return FakeAnswer{};
  });
  testing::ChildProcess run = StartLine("bench softmax --shape 8x32 --csv /dev/full");
  ASSERT_TRUE(Says(err_, "fast_row")) << ReadFile(err_);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 130);
  EXPECT_THAT(ReadFile(err_),
              HasSubstr("\nRESOURCE_EXHAUSTED: can't write /dev/full: No space left on device\n"));
}

TEST_F(BenchStreamTest, WhoWaitsIsToldHowManyGoBefore) {
  std::atomic<bool> told{false};
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    call.queued(2);
    told = Says(err_, "point 1 of 1: queued behind 2 calls, ");
    WriteRow("fast_row", 1000, call);
    WriteEnd(call);
    return FakeAnswer{};
  });
  testing::ChildProcess run = Start("--shape 8x32");
  EXPECT_EQ(run.Wait(), 0) << ReadFile(err_);
  EXPECT_TRUE(told.load()) << ReadFile(err_);
}

// The server's time is up, by a clock of its own: here none decides how far a point comes.
TEST_F(BenchStreamTest, ADeadlineCutsOnePointOnly) {
  std::atomic<int> calls{0};
  server_.AnswerBenchmarkStream([&](const BenchmarkStreamCall& call) {
    WriteRow("fast_row", 1000, call);
    if (calls.fetch_add(1) == 0)
      return FakeAnswer{absl::DeadlineExceededError("the deadline passed"), std::nullopt};
    WriteEnd(call);
    return FakeAnswer{};
  });
  const auto run = Warpcall(Command("--shape '{8,16}x32'"));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(calls.load(), 2);
  const std::vector<std::string> lines = Lines(run.out);
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("fast_row ")).Times(2));
  EXPECT_THAT(run.out, HasSubstr("\nnot all rows were measured: DEADLINE_EXCEEDED: "));
  EXPECT_THAT(run.out, HasSubstr("\n16x32 float32 on cpu: "));
  ExpectFiles({"fast_row"});
}

}  // namespace
}  // namespace warpcall::cli
