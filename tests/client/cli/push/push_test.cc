// `warpcall push`: requests, events as text and JSON, files, exit statuses.
#include <atomic>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/cli/push/push_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(PushCliTest, ShowsWhatCameAndTheVerdict) {
  const auto run = Push();
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out, cu_ + R"(: my_softmax, op softmax
queued behind 2 calls
compiled float32 for sm_90a in 113 ms: 32 registers, no spills, 4.00 KiB shared memory a block, )"
                           R"(occupancy 75%
  my.cu(9): warning #177-D: unused "n"
✓ 4096x1024 float32 axis=-1, normal: error 0.25 of its bound, 4194304 elements

4096x1024 float32: %COPY of 4.00 TB/s, %MADD of 50.0 TFLOP/s, floor 8.00 us
IMPLEMENTATION   MEDIAN      MIN  NOISE     B/s  %COPY  FLOP/s  %MADD  VS PUSH
pushed          10.0 us  9.00 us   0.2%  3.20 T    80%  2.00 T     4%     1.00
cudnn           12.0 us  11.0 us   0.4%  2.70 T    68%  1.70 T     3%     1.20
triton          did not run: takes rows only

NVIDIA H200, driver 580.1, CUDA 13.0, warpcalld 0.1.0
PASSED: 1.20x the speed of the best other implementation
)");
}

TEST_F(PushCliTest, ShowsTheLogOfWhatDoesNotCompile) {
  AnswerEvents({R"(compiled { compile_ns: 44000000 log: "my.cu(9): error: q\n  here" arch: "sm_90a"
                              data_type: DATA_TYPE_FLOAT16 })",
                "verdict { status: 'COMPILE_ERROR' reason: 'my.cu(9): error: q' }"});
  const auto run = Push();
  EXPECT_EQ(run.exit_status, 3);
  EXPECT_THAT(run.out, HasSubstr("does not compile: float16 for sm_90a in 44.0 ms\n"
                                 "  my.cu(9): error: q\n    here\n"));
  EXPECT_THAT(run.out, HasSubstr("COMPILE_ERROR: my.cu(9): error: q\n"));
}

// A server without a GPU compiles, and loads nothing.
TEST_F(PushCliTest, ShowsNoFiguresOfAGpuThatLoadedNothing) {
  AnswerEvents({R"(compiled { compile_ns: 44000000 arch: "sm_90a" kernel: "k"
                              data_type: DATA_TYPE_FLOAT16 })",
                "verdict { status: 'NOT_SUPPORTED' reason: 'it compiles' }"});
  EXPECT_THAT(Push().out, HasSubstr("compiled float16 for sm_90a in 44.0 ms\n"));
}

TEST_F(PushCliTest, SendsWhatTheCommandLineSays) {
  ASSERT_EQ(Push().exit_status, 0);
  EXPECT_EQ(Text(TakeRequests().at(0)), Text([] {
              v1::PushRequest request;
              request.set_code(kCode);
              return request;
            }()));
  const std::string manifest = folder_.Path("m.json");
  WriteText(manifest, R"({"op": "matmul", "types": ["bfloat16"]})");
  ASSERT_EQ(
      Push("--shape 4x8x2 --shape '{2,3}x2x2' --attribute transpose_b=true --manifest " + manifest +
           " --compare-with cuda --compare-with library --iterations 9 --seed 5 "
           "--device cuda:1 --fresh --timeout 500ms --with-files")
          .exit_status,
      0);
  v1::PushRequest request = TakeRequests().at(0);
  EXPECT_EQ(request.code(), kCode);
  request.clear_code();
  EXPECT_THAT(
      Text(request),
      AllOf(StartsWith("manifest_json: \"{\\\"op\\\": \\\"matmul\\\""),
            HasSubstr("problems { inputs { data_type: DATA_TYPE_BFLOAT16 shape: 4 shape: 2 }"
                      " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 8 shape: 2 }"
                      " attributes { key: \"transpose_b\" value { bool_value: true } } }"
                      " problems {"),
            EndsWith(" seed: 5 iterations: 9 compare_with: \"cuda\" compare_with: \"library\""
                     " device: \"cuda:1\" fresh: true with_files: true timeout_ns: 500000000")));
  EXPECT_EQ(request.problems_size(), 3);
  // Of each of the manifest's types, but for those that the command line names.
  ASSERT_EQ(Push("--shape 4x8 --check-only").exit_status, 0);
  EXPECT_EQ(TakeRequests().at(0).problems_size(), 2);
  ASSERT_EQ(Push("--shape 4x8 --type bf16").exit_status, 0);
  EXPECT_EQ(TakeRequests().at(0).problems(0).inputs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
}

TEST_F(PushCliTest, TheExitStatusIsTheVerdicts) {
  const std::pair<const char*, int> verdicts[] = {{"PASSED", 0},         {"INVALID_MANIFEST", 3},
                                                  {"COMPILE_ERROR", 3},  {"NOT_SUPPORTED", 4},
                                                  {"INTERNAL_ERROR", 5}, {"INPUT_MODIFIED", 3},
                                                  {"OUT_OF_BOUNDS", 3},  {"NONDETERMINISTIC", 3},
                                                  {"RUNTIME_ERROR", 3},  {"TIMEOUT", 3},
                                                  {"BELOW_FLOOR", 3},    {"INCORRECT_NUMERICAL", 3},
                                                  {"OF_TOMORROW", 3},    {"", 3}};
  for (const auto& [status, exit_status] : verdicts) {
    AnswerEvents({absl::StrCat("verdict { status: '", status, "' reason: 'why' seed: 9 }")});
    const auto run = Push();
    EXPECT_EQ(run.exit_status, exit_status) << status;
    EXPECT_EQ(run.err, "") << status;
    const std::string line = Lines(run.out).back();
    EXPECT_THAT(line, StartsWith(absl::StrCat(status, ": why"))) << status;
    // Which inputs there were changes nothing for a kernel that was never run.
    const bool ran = exit_status == 3 && !absl::StrContains(status, "MANIFEST") &&
                     !absl::StrContains(status, "COMPILE");
    EXPECT_EQ(absl::StrContains(line, "; --seed 9 repeats it"), ran) << status;
    EXPECT_EQ(WarpcallJson("push " + cu_, exit_status)["exit_status"], exit_status) << status;
  }
}

TEST_F(PushCliTest, AVerdictSaysWhatItIsWorth) {
  AnswerEvents({"verdict { status: 'PASSED' finite_only: true cached: true speedup: 0.5 }"});
  EXPECT_EQ(Lines(Push().out).back(),
            "PASSED for finite inputs: 0.50x the speed of the best other implementation; results "
            "differ from run to run; judged earlier; --fresh judges it anew");
}

TEST_F(PushCliTest, AWrongElementIsSaidInWords) {
  AnswerEvents(
      {R"(checked { problem { inputs { data_type: DATA_TYPE_FLOAT16 shape: 33 shape: 18 } }
                     max_error: nan checked_elements: 594 fill: "special values"
                     first { index: 0 index: 17 got: nan expected: 0 bound: 1e-7 }
                     detail: "only for x = -inf" })",
       R"(checked { max_error: inf first { got: -inf expected: 0.123456789 bound: 0.5 } })",
       "verdict { status: 'INCORRECT_NUMERICAL' reason: 'wrong' }"});
  const auto run = Push();
  EXPECT_EQ(run.exit_status, 3);
  EXPECT_THAT(run.out,
              HasSubstr("✗ 33x18 float16, special values: error NaN of its bound, 594 elements\n"
                        "  first wrong element [0, 17]: got NaN, expected 0, allowed 1e-07 off\n"
                        "  only for x = -inf\n"));
  EXPECT_THAT(run.out, HasSubstr("got -inf, expected 0.123456789, allowed 0.5 off\n"));
  const json events = WarpcallJson("push " + cu_, 3)["events"];
  EXPECT_EQ(events[0]["first"]["got"], "nan");
  EXPECT_EQ(events[0]["first"]["index"], json({0, 17}));
  EXPECT_EQ(events[0]["first"]["bound"], 1e-7);
  EXPECT_EQ(events[1]["max_error"], "inf");
}

TEST_F(PushCliTest, TextOfOthersMakesATerminalDoNothing) {
  const std::string evil = R"(\x1b[31;1mred\x1b]0;title\x07\r\u202e)";
  AnswerEvents({absl::StrCat("compiled { log: \"one\\n", evil, "\\n\" kernel: \"", evil, "\" }"),
                absl::StrCat("checked { detail: \"", evil, "\" fill: \"", evil, "\" }"),
                absl::StrCat("verdict { status: \"", evil, "\" reason: \"", evil, "\" name: \"",
                             evil, "\" }")});
  // As on a terminal with colours, whose own codes stay: `script` gives the program one.
  const auto run =
      Shell(absl::StrCat("TERM=xterm script -qec \"'", testing::ProgramPath("warpcall"), "' push ",
                         cu_, "\" /dev/null"));
  EXPECT_THAT(run.out, HasSubstr("\\x1b[31;1mred"));
  for (const char* const control : {"\x1b]", "\x1b[31", "\x07", "\u202e"})
    EXPECT_THAT(run.out, Not(HasSubstr(control)));
}

TEST_F(PushCliTest, JsonHasEverything) {
  const json value = WarpcallJson("push " + cu_);
  EXPECT_EQ(value["file"], cu_);
  EXPECT_EQ(value["name"], "my_softmax");
  EXPECT_EQ(value["op"], "softmax");
  EXPECT_EQ(value["server"]["address"], server_.address());
  EXPECT_EQ(value["error"], nullptr);
  EXPECT_EQ(value["status"], "PASSED");
  ASSERT_THAT(value["events"], SizeIs(5));
  EXPECT_EQ(value["events"][0], json({{"event", "queued"}, {"before", 2}}));
  const json& compiled = value["events"][1];
  EXPECT_EQ(compiled["event"], "compiled");
  EXPECT_EQ(compiled["data_type"], "float32");
  EXPECT_EQ(compiled["registers_per_thread"], 32);
  EXPECT_THAT(std::string(compiled["log"]), StartsWith("my.cu(9)"));
  const json& checked = value["events"][2];
  EXPECT_EQ(checked["problem"],
            json({{"inputs", {{{"data_type", "float32"}, {"shape", {4096, 1024}}}}},
                  {"attributes", {{"axis", -1}}}}));
  EXPECT_EQ(checked["first"], nullptr);
  EXPECT_EQ(checked["histogram"], json({0, 0, 4000000, 194304}));
  EXPECT_EQ(value["events"][3]["results"][1]["implementation"], "cudnn");
  EXPECT_EQ(value["events"][3]["problem"]["inputs"], checked["problem"]["inputs"]);
  EXPECT_EQ(value["verdict"]["name"], "push:my_softmax@00ff");
  EXPECT_EQ(value["verdict"]["stamp"]["driver"], "580.1");
  EXPECT_EQ(value["events"][4]["speedup"], 1.2);
  EXPECT_EQ(value["exit_status"], 0);
}

TEST_F(PushCliTest, JsonHasNoFiguresOfWhatDidNotRun) {
  AnswerEvents({"compiled { data_type: DATA_TYPE_FLOAT32 kernel: 'k' arch: 'sm_90a' }",
                "verdict { status: 'NOT_SUPPORTED' reason: 'no GPU' deterministic: true }"});
  const json value = WarpcallJson("push " + cu_, 4);
  for (const char* const figure : {"registers_per_thread", "shared_memory_bytes",
                                   "local_memory_bytes", "theoretical_occupancy"})
    EXPECT_EQ(value["events"][0].at(figure), nullptr) << figure;
  for (const char* const figure : {"speedup", "deterministic"}) {
    EXPECT_EQ(value["events"][1].at(figure), nullptr) << figure;
    EXPECT_EQ(value["verdict"].at(figure), nullptr) << figure;
  }
  AnswerEvents({"verdict { status: 'NONDETERMINISTIC' }"});
  EXPECT_EQ(WarpcallJson("push " + cu_, 3)["verdict"]["deterministic"], false);
  AnswerEvents({"verdict { status: 'PASSED' deterministic: true }"});
  EXPECT_EQ(WarpcallJson("push " + cu_)["verdict"]["deterministic"], true);
}

TEST_F(PushCliTest, EventsOfNewerServersDoNoHarm) {
  AnswerEvents({"", "verdict { status: 'PASSED' }"});
  EXPECT_EQ(Push().exit_status, 0);
  EXPECT_EQ(WarpcallJson("push " + cu_)["events"][0], json({{"event", "unknown"}}));
}

TEST_F(PushCliTest, EventsAreShownAsTheyCome) {
  std::atomic<bool> compiled_shown{false}, waits_shown{false};
  Answer([&](const PushStreamCall& call) {
    WriteEvent(kGoodEvents[1], call);
    compiled_shown = Says(out_, "compiled float32");
    waits_shown = Says(err_, "pushing " + cu_ + ": 1 s so far");
    WriteEvent(kPassedVerdict, call);
    return FakeAnswer{};
  });
  testing::ChildProcess run = Start("");
  EXPECT_EQ(run.Wait(), 0) << ReadFile(err_);
  EXPECT_TRUE(compiled_shown.load());
  EXPECT_TRUE(waits_shown.load());
}

TEST_F(PushCliTest, ACutStreamKeepsWhatCame) {
  Answer([](const PushStreamCall& call) {
    WriteEvent(kGoodEvents[1], call);
    return FakeAnswer{absl::UnavailableError("draining"), "-1"};
  });
  const auto run = Push();
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("compiled float32"));
  EXPECT_EQ(run.err, "UNAVAILABLE: draining\n");
  const json value = WarpcallJson("push " + cu_, 1);
  EXPECT_EQ(value["error"]["code"], "UNAVAILABLE");
  EXPECT_EQ(value["error"]["message"], "draining");
  EXPECT_EQ(value["error"]["retryable"], false);
  EXPECT_EQ(value["status"], nullptr);
  EXPECT_EQ(value["verdict"], nullptr);
  EXPECT_THAT(value["events"], SizeIs(1));
}

TEST_F(PushCliTest, RefusalsEndWithStatus1) {
  Answer([](const PushStreamCall&) {
    return FakeAnswer{absl::PermissionDeniedError("the policy does not name Push"), std::nullopt};
  });
  const auto run = Push();
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.err, "PERMISSION_DENIED: the policy does not name Push\n");
  Answer([](const PushStreamCall&) {
    return FakeAnswer{absl::UnimplementedError(""), std::nullopt};
  });
  EXPECT_EQ(Push().err,
            "UNIMPLEMENTED: the server has no Push: it is older than this client; a newer "
            "warpcalld is needed\n");
  EXPECT_EQ(Push("--shape 4").exit_status, 1);
  server_.Stop();
  EXPECT_THAT(Push("--deadline 5").err, HasSubstr("UNAVAILABLE: "));
}

TEST_F(PushCliTest, CtrlCEndsThePush) {
  std::atomic<bool> cancelled{false};
  Answer([&](const PushStreamCall& call) {
    WriteEvent(kGoodEvents[1], call);
    cancelled = Eventually(call.cancelled);
    return FakeAnswer{};
  });
  testing::ChildProcess run = Start("--json");
  ASSERT_TRUE(Says(err_, "1 s so far"));
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 130);
  EXPECT_TRUE(Eventually([&] { return cancelled.load(); }));
  EXPECT_EQ(json::parse(ReadFile(out_))["exit_status"], 130);
  EXPECT_THAT(ReadFile(err_), HasSubstr("interrupted by signal 2"));
}

TEST_F(PushCliTest, MistakesAreSaidBeforeAnythingIsSent) {
  const std::string empty = folder_.Path("empty.cu"), large = folder_.Path("large.cu"),
                    bare = folder_.Path("bare.cu"), late = folder_.Path("late.cu");
  WriteText(empty, " \n");
  WriteText(large, std::string((4 << 20) + 1, 'x'));
  WriteText(bare, "__global__ void k() {}\n");
  WriteText(late, "#pragma once\n// warpcall-kernel {\n// }\n");
  const std::string cu = "push " + cu_ + " ";
  ExpectUsageErrors(
      {{"push " + folder_.Path("none.cu"), "NOT_FOUND: can't read "},
       {"push " + folder_.Path(""), "can't read "},
       {"push " + empty, "empty.cu is empty"},
       {"push " + large, "large.cu has more than 4194304 bytes"},
       {"push " + bare,
        "bare.cu: the source does not begin with the manifest, "
        "\"// warpcall-kernel {\"; or give --manifest FILE.json"},
       {"push " + late, "late.cu: the manifest, \"// warpcall-kernel {\", stands in line 2"},
       {"push", "file is required"},
       {cu + "--manifest " + empty, "empty.cu is empty"},
       {cu + "--type f32", "--type requires --shape"},
       {cu + "--attribute axis=1", "--attribute requires --shape"},
       {cu + "--shape 4xq", "--shape 4xq"},
       {cu + "--shape 4 --attribute axes=1", "did you mean axis?"},
       {cu + "--shape '{1..300:+1}'", "has more than 256 values"},
       {cu + "--shape '{1..200:+1}'", "name 400 problems; at most 256 are allowed"},
       {cu + "--timeout 0", "--timeout 0: it must be"},
       {cu + "--check-only --compare-with cuda", "--compare-with excludes --check-only"},
       {cu + "--files /nowhere", "--files /nowhere: there is no such folder"},
       {cu + "--html " + cu_, "name the same file"},
       {cu + "--html /nowhere/x.html", "/nowhere/x.html"},
       {cu + "--iterations 0", "not in the range"},
       {cu + "--iterations 100001", "100001 is not in the range 1 to 100000"}});
  EXPECT_EQ(requests(), 0u);
}

TEST_F(PushCliTest, WhoHasNoManifestSeesTheShortest) {
  WriteText(cu_, "__global__ void k() {}\n");
  EXPECT_THAT(Push().err, HasSubstr("\nThe shortest manifest:\n// warpcall-kernel {\n// "));
  EXPECT_THAT(Warpcall("help push").out, HasSubstr("\n// warpcall-kernel {\n// "));
  // JSON stays on one line.
  EXPECT_THAT(Lines(Push("--json").err), SizeIs(1));
  // A kernel with it is pushed.
  const std::string err = Push().err;
  const std::string example = err.substr(err.find("\n// warpcall-kernel") + 1);
  WriteText(cu_, example);
  EXPECT_THAT(Push().out, StartsWith(cu_ + ": my_gelu, op gelu\n"));
}

TEST_F(PushCliTest, FilesLieBesideTheCodeUnderNamesOfTheirOwn) {
  AnswerEvents({R"(compiled { data_type: DATA_TYPE_FLOAT32
                     files { name: "../../evil" language: "ptx" text: "ptx 1" }
                     files { name: "a" language: "ptx" text: "ptx 2" }
                     files { name: "a" language: "../x" text: "none" }
                     files { name: "a" language: "sass" text: "sass 1" } })",
                "compiled { data_type: DATA_TYPE_FLOAT16 files { language: 'ptx' text: 'ptx 3' } }",
                "verdict { status: 'PASSED' }"});
  const std::vector<std::string> before = folder_.Names();
  ASSERT_EQ(Push("--with-files").exit_status, 0);
  EXPECT_EQ(ReadFile(folder_.Path("my.float32.ptx")), "ptx 1");
  EXPECT_EQ(ReadFile(folder_.Path("my.float32-2.ptx")), "ptx 2");
  EXPECT_EQ(ReadFile(folder_.Path("my.float32.sass")), "sass 1");
  EXPECT_EQ(ReadFile(folder_.Path("my.float16.ptx")), "ptx 3");
  EXPECT_THAT(folder_.Names(), SizeIs(before.size() + 4));
  const testing::TempFolder other;
  ASSERT_EQ(Push("--files " + other.Path("")).exit_status, 0);
  EXPECT_THAT(other.Names(), SizeIs(4));
}

TEST_F(PushCliTest, LargePushesAreShownWhole) {
  Answer([](const PushStreamCall& call) {
    v1::PushEvent compiled;
    for (int i = 0; i < 4096; ++i)
      compiled.mutable_compiled()->mutable_log()->append("0123456789abcde\n");
    call.writer->Write(compiled);
    for (int i = 0; i < 500; ++i)
      WriteEvent(absl::StrCat("checked { passed: true problem { inputs { data_type: "
                              "DATA_TYPE_FLOAT32 shape: ",
                              i, "} } }"),
                 call);
    WriteEvent(kPassedVerdict, call);
    return FakeAnswer{};
  });
  const auto run = Push();
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_THAT(Lines(run.out), SizeIs(1 + 1 + 4096 + 500 + 2));
  EXPECT_THAT(run.out, HasSubstr("\n✓ 499 float32: error 0 of its bound"));
  EXPECT_THAT(WarpcallJson("push " + cu_)["events"], SizeIs(502));
}

}  // namespace
}  // namespace warpcall::cli
