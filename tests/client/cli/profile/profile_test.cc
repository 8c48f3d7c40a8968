// `warpcall profile` as its users have it.
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/substitute.h"
#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kLongName[] =
    "void warpcall::softmax::SubwarpPerRow<__nv_bfloat16, 4, 32>(Operands, long, long)";
constexpr char kTrace[] = R"({"traceEvents": []})";

void AddRow(const std::string& name, const std::string& kind, int64_t total_ns,
            v1::ProfileResponse* response) {
  v1::ProfileRow* row = response->add_rows();
  testing::Merge("calls: 3 achieved_occupancy: -1 sm_throughput: -1 dram_throughput: -1", row);
  row->set_name(name);
  row->set_kind(kind);
  row->set_total_ns(total_ns);
  row->set_mean_ns(static_cast<double>(total_ns) / 3);
  row->set_fraction(kind == "host" ? 0 : static_cast<double>(total_ns) / 100'000);
}

// A kernel with all counters, a copy, a gap, a phase of the host.
FakeAnswer FourRows(const v1::ProfileRequest& request, v1::ProfileResponse* response) {
  testing::Merge("implementation: 'subwarp_per_row' device: 'cuda:0' iterations: 3", response);
  AddRow("parse", "host", 90'000, response);
  AddRow(kLongName, "kernel", 60'000, response);
  testing::Merge(R"(registers_per_thread: 40 shared_memory_bytes: 2048 grid: "128,1,1"
                    block: "256,2,1" achieved_occupancy: 0.5 sm_throughput: 0.25
                    dram_throughput: 0.925)",
                 response->mutable_rows(1));
  AddRow("copy in", "copy", 30'000, response);
  response->mutable_rows(2)->set_bytes(1 << 20);
  AddRow("idle", "gap", 10'000, response);
  if (request.trace()) response->set_trace_json(kTrace);
  return {};
}

// Output for these rows if the server has no
// Describe, and no device cuda:0 in its list.
constexpr char kFourRowsText[] = R"(gelu on cuda:0 by subwarp_per_row, 3 iterations
Bound by memory: memory works at 92.5% of its peak.
- A narrower type has fewer bytes.
- One call for the steps before and after it too (warpcall fused) saves passes over memory.

KERNELS     TIME  AS A COPY  LEAST BYTES  PASSES  B/s  % COPY  FLOP/s
      1  20.0 us          -            -       -    -       -       -

NAME                                  KIND    CALLS    TOTAL     MEAN  SHARE        B/s
void warpcall::so...nds, long, long)  kernel      3  60.0 us  20.0 us  60.0%          -
copy in                               copy        3  30.0 us  10.0 us  30.0%  35.0 GB/s
idle                                  gap         3  10.0 us  3.33 us  10.0%          -

LAUNCH                        REGS      SMEM     GRID    BLOCK    OCC     SM   DRAM
void warpcall... long, long)    40  2.00 KiB  128,1,1  256,2,1  50.0%  25.0%  92.5%

HOST PHASE  CALLS    TOTAL     MEAN
parse           3  90.0 us  30.0 us

least bytes and FLOPs unknown: Describe: no Describe
)";

constexpr char kCpuText[] = R"(gelu on cpu by simd_fused, 3 iterations
Bound by compute: the threads were busy 90.0% of the time, and the least bytes moved at 32.0% of
  copy bandwidth. Or it makes up to 3.1 passes over memory: only hardware counters could tell.
- `warpcall bench` times the other implementations on this problem.
- A narrower type has more elements in a vector.

KERNELS     TIME  AS A COPY  LEAST BYTES   PASSES        B/s  % COPY        FLOP/s
      1  1.00 ms     320 us     7.63 MiB  <= 3.12  8.00 GB/s   32.0%  2.00 GFLOP/s

NAME        KIND    CALLS    TOTAL     MEAN   SHARE  B/s
simd_fused  kernel      3  3.00 ms  1.00 ms  100.0%    -

HOST PHASE  CALLS    TOTAL     MEAN
run             3  3.00 ms  1.00 ms

THREAD         WORKED  OF THE TIME
cpu thread 0  3.00 ms       100.0%
cpu thread 1  2.40 ms        80.0%

COUNTER         TOTAL  PER RUN  BYTES
instructions  3600000   1.20 M      -
page faults         0        -      -

hardware counters: no cycles, cache misses: this machine has none
)";

constexpr char kTwoText[] =
    R"(gelu on cpu by simd_fused (3 iterations) and by chain_of_loops (3 iterations)
chain_of_loops takes 3.00 times as long as simd_fused.
- chain_of_loops takes 2 kernels a run, the other 1: each reads and writes memory again.

simd_fused: Bound by compute: the threads were busy 90.0% of the time, and the least bytes moved
  at 32.0% of copy bandwidth. Or it makes up to 3.1 passes over memory: only hardware counters could
  tell.
chain_of_loops: Bound by compute: the threads were busy 90.0% of the time, and the least bytes
  moved at 10.7% of copy bandwidth. Or it makes up to 9.4 passes over memory: only hardware counters
  could tell.

PER RUN                      simd_fused  chain_of_loops  RATIO
time on the device              1.00 ms         3.00 ms   3.00
kernels' time                   1.00 ms         3.00 ms   3.00
run, with the host's part       1.00 ms         1.00 ms   1.00
kernels                               1               2   2.00
B/s of the least bytes        8.00 GB/s       2.67 GB/s   0.33
of a copy's speed                 32.0%           10.7%   0.33
FLOP/s                     2.00 GFLOP/s     667 MFLOP/s   0.33
passes, at most                   3.125           9.375   3.00
threads working                   90.0%           90.0%   1.00
instructions                     1.20 M          1.20 M   1.00

hardware counters: no cycles, cache misses: this machine has none
)";

// Three runs of a millisecond on two threads.
FakeAnswer OnTheCpu(const v1::ProfileRequest&, v1::ProfileResponse* response) {
  testing::Merge("implementation: 'simd_fused' device: 'cpu' iterations: 3", response);
  response->set_counters_unavailable("no cycles, cache misses: this machine has none");
  AddRow("run", "host", 3'000'000, response);
  AddRow("simd_fused", "kernel", 3'000'000, response);
  AddRow("cpu thread 0", "thread", 3'000'000, response);
  AddRow("cpu thread 1", "thread", 2'400'000, response);
  for (v1::ProfileRow& row : *response->mutable_rows())
    row.set_fraction(row.kind() == "host" ? 0 : static_cast<double>(row.total_ns()) / 3'000'000);
  AddRow("instructions", "counter", 0, response);
  response->mutable_rows(4)->set_calls(3'600'000);
  AddRow("page faults", "counter", 0, response);
  response->mutable_rows(5)->set_calls(0);
  return {};
}

FakeAnswer Moves8Megabytes(const v1::DescribeRequest& request, v1::DescribeResponse* response) {
  testing::Merge("launch { bytes_moved: 8000000 flops: 2000000 }", response);
  response->set_implementation(request.implementation());
  return {};
}

constexpr char kGraphText[] = R"($0 on cpu, 3 iterations
Bound by compute: the threads were busy 90.0% of the time, and the least bytes moved at 32.0% of
  copy bandwidth. Or it makes up to 3.1 passes over memory: only hardware counters could tell.
- `warpcall bench` times the other implementations on this problem.
- A narrower type has more elements in a vector.

KERNELS     TIME  AS A COPY  LEAST BYTES   PASSES        B/s  % COPY        FLOP/s
      2  1.00 ms     320 us     7.63 MiB  <= 3.12  8.00 GB/s   32.0%  2.00 GFLOP/s

STEP  NAME    KIND    CALLS    TOTAL     MEAN  SHARE  B/s
h     linear  kernel      3  2.00 ms   667 us  66.7%    -
y     gelu    kernel      3  1.00 ms   333 us  33.3%    -
-     idle    gap         3  30.0 us  10.0 us   1.0%    -
)";

constexpr char kLinearAndGelu[] = R"({
  "steps": [{"name": "h", "kernel": "linear", "inputs": ["x", "w", "b"]},
            {"name": "y", "kernel": "gelu", "inputs": ["h"]}],
  "outputs": ["y", {"name": "h", "keep": true, "label": "hidden"}]
})";
constexpr char kOneStep[] = R"({
  "steps": [{"name": "y", "kernel": "linear", "inputs": ["x", "w", "b"],
             "attributes": {"activation": "gelu"}}],
  "outputs": ["y"]
})";

// As OnTheCpu, by the steps of a graph; one step takes half as long.
FakeAnswer StepsOnTheCpu(const v1::ProfileRequest& request, v1::ProfileResponse* response) {
  OnTheCpu(request, response);
  response->set_implementation("graph");
  response->mutable_rows()->DeleteSubrange(1, 1);
  const bool is_one = request.graph().steps_size() == 1;
  AddRow("linear", "kernel", is_one ? 1'500'000 : 2'000'000, response);
  response->mutable_rows()->rbegin()->set_step(is_one ? "y" : "h");
  if (!is_one) {
    AddRow("gelu", "kernel", 1'000'000, response);
    response->mutable_rows()->rbegin()->set_step("y");
  }
  AddRow("idle", "gap", 30'000, response);
  for (v1::ProfileRow& row : *response->mutable_rows())
    if (row.kind() == "kernel" || row.kind() == "gap")
      row.set_fraction(static_cast<double>(row.total_ns()) / 3'000'000);
  if (request.trace()) response->set_trace_json(kTrace);
  return {};
}

class ProfileCliTest : public CliTest {
 protected:
  ProfileCliTest() {
    server_.AnswerProfile(std::ref(profile_));
    server_.AnswerDescribe(std::ref(describe_));
    server_.AnswerBenchmark(std::ref(benchmark_));
    describe_.Refuse(absl::UnimplementedError("no Describe"));
  }

  // On a screen that is so wide.
  ProgramResult Within(int columns, const std::string& line) {
    return Shell(
        absl::StrCat("COLUMNS=", columns, " '", testing::ProgramPath("warpcall"), "' ", line));
  }

  std::string Store(const std::string& name, const std::string& text) const {
    const std::string path = folder_.Path(name);
    std::ofstream(path) << text;
    return path;
  }

  Script<v1::ProfileRequest, v1::ProfileResponse> profile_{FourRows};
  Script<v1::DescribeRequest, v1::DescribeResponse> describe_{Moves8Megabytes};
  Script<v1::BenchmarkRequest, v1::BenchmarkResponse> benchmark_{
      [](const v1::BenchmarkRequest&, v1::BenchmarkResponse*) { return FakeAnswer{}; }};
};

TEST_F(ProfileCliTest, SendsFilesAndPrintsWhatTheDeviceAndTheHostDid) {
  const auto run = Warpcall(absl::StrCat("profile gelu --input ", x_,
                                         " --implementation cuda --device cuda:0 --iterations 3"
                                         " --attribute axis=0"));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(profile_.TakeText(),
            "request { kernel: \"gelu\" implementation: \"cuda\""
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 2"
            " data: \"\\000\\000\\200?\\000\\000\\000@\\000\\000@@\\000\\000\\200@\" }"
            " attributes { key: \"axis\" value { int_value: 0 } } device: \"cuda:0\" }"
            " iterations: 3 seed: 1");
  EXPECT_EQ(run.out, kFourRowsText);
}

TEST_F(ProfileCliTest, OnlyTheTenLongestRowsAreShown) {
  profile_.Set([](const v1::ProfileRequest&, v1::ProfileResponse* response) {
    for (int i = 1; i <= 13; ++i) AddRow(absl::StrCat("kernel_", i), "kernel", i * 1000, response);
    return FakeAnswer{};
  });
  const auto run = Warpcall("profile gelu --shape 8");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("kernel_13"));
  EXPECT_THAT(run.out, HasSubstr("kernel_4 "));
  EXPECT_THAT(run.out, Not(HasSubstr("kernel_3 ")));
  EXPECT_THAT(run.out, HasSubstr("\n3 more (all: --json)\n"));
  EXPECT_EQ(WarpcallJson("profile gelu --shape 8")["rows"].size(), 13u);
}

TEST_F(ProfileCliTest, SaysWhyThereAreNoCounters) {
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    response->set_counters_unavailable("the driver gives them to administrators only");
    return FourRows(request, response);
  });
  const auto run = Warpcall("profile gelu --shape 8");
  EXPECT_THAT(run.out, HasSubstr("no counters (OCC, SM, DRAM): the driver gives them to "
                                 "administrators only\n"));
}

TEST_F(ProfileCliTest, CsvHasALineForEachRow) {
  const std::string path = folder_.Path("profile.csv");
  const auto run = Warpcall("profile gelu --shape 8 --csv -");
  EXPECT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0],
            "kernel,implementation,device,name,kind,calls,total_ns,mean_ns,fraction,"
            "registers_per_thread,shared_memory_bytes,grid,block,achieved_occupancy,sm_throughput,"
            "dram_throughput,bytes,step,iterations,verdict.bound,verdict.reason,verdict.advice,"
            "comparison.time_ratio,comparison.reasons,figures.run_ns,figures.kernel_ns,"
            "figures.kernels,figures.gap_ns,figures.transfer_ns,figures.least_bytes,figures.flops,"
            "figures.counted_bytes,figures.ceiling_bytes_per_second,figures.bytes_per_second,"
            "figures.flops_per_second,figures.fraction_of_ceiling,figures.passes,"
            "figures.passes_max,figures.achieved_occupancy,figures.sm_throughput,"
            "figures.dram_throughput,figures.threads_busy,figures.threads_waiting,"
            "figures.instructions,figures.cycles");
  const std::string verdict = "3,memory,memory works at 92.5% of its peak.,A narrower type";
  EXPECT_THAT(
      lines[1],
      StartsWith("gelu,subwarp_per_row,cuda:0,parse,host,3,90000,30000,,0,0,,,,,,0,," + verdict));
  EXPECT_THAT(lines[2], StartsWith(absl::StrCat("gelu,subwarp_per_row,cuda:0,\"", kLongName,
                                                "\",kernel,3,60000,20000,0.6,40,2048,\"128,1,1\","
                                                "\"256,2,1\",0.5,0.25,0.925,0,,",
                                                verdict)));
  EXPECT_THAT(lines[2],
              EndsWith(",,,,20000,1,3333.3333333333335,10000,,,,,,,,,,0.5,0.25,0.925,,,,"));
  const auto table = Warpcall("profile gelu --shape 8 --csv " + path);
  EXPECT_THAT(table.out, HasSubstr("HOST PHASE"));
  EXPECT_EQ(ReadFile(path), run.out);
  ExpectUsageErrors({{"profile gelu --shape 8 --json --csv -", "both want stdout"},
                     {"profile gelu --shape 8 --csv /nowhere/at/all.csv", "/nowhere/at/all.csv"}});
}

TEST_F(ProfileCliTest, JsonHasEveryRowInFull) {
  json value = WarpcallJson("profile gelu --shape 8");
  const json rows = std::exchange(value["rows"], nullptr);
  const json figures = std::exchange(value["figures"], nullptr);
  const json verdict = std::exchange(value["verdict"], nullptr);
  EXPECT_EQ(value, json::parse(R"({"kernel": "gelu", "implementation": "subwarp_per_row",
    "device": "cuda:0", "iterations": 3, "iterations_asked": null, "counters_unavailable": "",
    "plan_missing": "Describe: no Describe", "rows": null, "figures": null, "verdict": null,
    "variant": ""})"));
  EXPECT_EQ(verdict["bound"], "memory");
  EXPECT_EQ(verdict["reason"], "memory works at 92.5% of its peak.");
  EXPECT_EQ(verdict["advice"].size(), 2u);
  EXPECT_EQ(figures["kernel_ns"], 20'000);
  EXPECT_EQ(figures["transfer_ns"], 10'000);
  EXPECT_EQ(figures["dram_throughput"], 0.925);
  EXPECT_EQ(figures["least_bytes"], nullptr);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["kind"], "host");
  EXPECT_EQ(rows[0]["fraction"], nullptr);
  json kernel = json::parse(R"({"kind": "kernel", "calls": 3, "total_ns": 60000,
    "mean_ns": 20000, "fraction": 0.6, "registers_per_thread": 40, "shared_memory_bytes": 2048,
    "grid": "128,1,1", "block": "256,2,1", "achieved_occupancy": 0.5, "sm_throughput": 0.25,
    "dram_throughput": 0.925, "bytes": 0, "step": ""})");
  kernel["name"] = kLongName;
  EXPECT_EQ(rows[1], kernel);
  EXPECT_EQ(rows[2]["bytes"], 1 << 20);
  EXPECT_EQ(rows[2]["achieved_occupancy"], nullptr);
}

TEST_F(ProfileCliTest, OfTheCpuThereAreThreadsAndCounters) {
  profile_.Set(OnTheCpu);
  describe_.Set(Moves8Megabytes);
  const auto run = Within(100, "profile gelu --shape 1000000");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(describe_.TakeText(),
            "kernel: \"gelu\" implementation: \"simd_fused\""
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 1000000 } device: \"cpu\"");
  EXPECT_EQ(run.out, kCpuText);
}

// 8 MB in 250 us are 32 GB/s, and 25 are said to be a copy's.
TEST_F(ProfileCliTest, ACopyThatIsOutdoneIsMeasuredAgain) {
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    OnTheCpu(request, response);
    response->mutable_rows(1)->set_total_ns(750'000);
    return FakeAnswer{};
  });
  describe_.Set(Moves8Megabytes);
  const auto judged = [&](double measured_again) {
    benchmark_.Set([measured_again](const v1::BenchmarkRequest&, v1::BenchmarkResponse* response) {
      response->set_ceiling_bytes_per_second(measured_again);
      return FakeAnswer{};
    });
    return WarpcallJson("profile gelu --shape 1000000");
  };
  EXPECT_DOUBLE_EQ(judged(4e10)["figures"]["fraction_of_ceiling"].get<double>(), 0.8);
  EXPECT_THAT(benchmark_.TakeText(), HasSubstr("kernel: \"identity\""));
  const json outdone = judged(2e10);
  EXPECT_DOUBLE_EQ(outdone["figures"]["fraction_of_ceiling"].get<double>(), 1.28);
  EXPECT_THAT(outdone["verdict"]["reason"].get<std::string>(), HasSubstr("Over 100% of a copy: "));
  // A row that is not outdone stays as it is.
  benchmark_.Take();
  profile_.Set(OnTheCpu);
  judged(4e10);
  EXPECT_THAT(benchmark_.Take(), IsEmpty());
}

TEST_F(ProfileCliTest, WhatOtherWorkTookIsNoReasonForAnything) {
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    response->set_inconclusive("other work took 88 % of the threads' time");
    return OnTheCpu(request, response);
  });
  describe_.Set(Moves8Megabytes);
  const std::string line = "profile gelu --shape 1000000";
  EXPECT_THAT(Warpcall(line).out,
              StartsWith("gelu on cpu by simd_fused, 3 iterations\n"
                         "Inconclusive: other work took 88 % of the threads' time.\n\nKERNELS "));
  EXPECT_EQ(WarpcallJson(line)["verdict"],
            json({{"bound", "inconclusive"},
                  {"reason", "other work took 88 % of the threads' time."},
                  {"advice", json::array()}}));
  EXPECT_THAT(Lines(Warpcall(line + " --csv -").out)[1],
              HasSubstr(",inconclusive,other work took 88 % of the threads' time.,,"));
  EXPECT_THAT(Warpcall(line + " --implementation cpu --implementation manual").out,
              AllOf(HasSubstr("\n- Inconclusive: while simd_fused ran, other work took 88 % of"),
                    Not(HasSubstr("times as long as"))));
}

TEST_F(ProfileCliTest, SentencesFitTheScreen) {
  profile_.Set(OnTheCpu);
  describe_.Set(Moves8Megabytes);
  const auto run = Within(70, "profile gelu --shape 1000000");
  EXPECT_THAT(run.out,
              HasSubstr("\nBound by compute: the threads were busy 90.0% of the time, and the\n"
                        "  least bytes moved at 32.0% of copy bandwidth. Or it makes up to 3.1\n"
                        "  passes over memory: only hardware counters could tell.\n"));
  for (const std::string& line : Lines(run.out)) EXPECT_LE(line.size(), 70u) << line;
}

TEST_F(ProfileCliTest, OfTwoEachSaysWhyItsCountersAreMissing) {
  describe_.Set(Moves8Megabytes);
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    OnTheCpu(request, response);
    response->set_implementation(request.request().implementation());
    response->set_counters_unavailable("of " + request.request().implementation());
    return FakeAnswer{};
  });
  EXPECT_THAT(Warpcall("profile gelu --shape 8 --implementation cpu --implementation manual").out,
              EndsWith("\ncpu: hardware counters: of cpu\nmanual: hardware counters: of manual\n"));
}

TEST_F(ProfileCliTest, AnOlderServersDescribeIsMissed) {
  const auto run = Warpcall("profile gelu --shape 8");
  EXPECT_THAT(run.out, HasSubstr("\nleast bytes and FLOPs unknown: Describe: no Describe\n"));
}

TEST_F(ProfileCliTest, FewerIterationsThanAskedForAreSaid) {
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    FourRows(request, response);
    response->set_iterations(5);
    return FakeAnswer{};
  });
  EXPECT_THAT(Warpcall("profile gelu --shape 8 --iterations 1000").out,
              HasSubstr(", 5 of 1000 iterations (the server's time for a profile was up)\n"));
  EXPECT_THAT(Warpcall("profile gelu --shape 8").out, HasSubstr(", 5 iterations\n"));
  EXPECT_EQ(WarpcallJson("profile gelu --shape 8 --iterations 1000")["iterations_asked"], 1000);
}

TEST_F(ProfileCliTest, TwoImplementationsStandSideBySide) {
  // `manual` takes three times as long, in two kernels.
  profile_.Set([](const v1::ProfileRequest& request, v1::ProfileResponse* response) {
    OnTheCpu(request, response);
    if (request.request().implementation() != "manual") return FakeAnswer{};
    response->set_implementation("chain_of_loops");
    AddRow("another", "kernel", 6'000'000, response);
    return FakeAnswer{};
  });
  describe_.Set(Moves8Megabytes);
  const std::string line =
      "profile gelu --shape 1000000 --implementation cpu --implementation manual";
  const auto run = Within(100, line);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const auto requests = profile_.Take();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].request().implementation(), "cpu");
  EXPECT_EQ(requests[0].request().device(), "");
  EXPECT_EQ(requests[1].request().implementation(), "manual");
  EXPECT_EQ(requests[1].request().device(), "cpu");
  EXPECT_EQ(run.out, kTwoText);

  const json comparison = WarpcallJson(line)["comparison"];
  EXPECT_DOUBLE_EQ(comparison["time_ratio"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(comparison["ratios"]["kernels"].get<double>(), 2);
  EXPECT_EQ(comparison["reasons"].size(), 1u);
  const std::vector<std::string> lines = Lines(Warpcall(line + " --csv -").out);
  ASSERT_EQ(lines.size(), 1u + 6 + 7);
  EXPECT_THAT(lines[1], StartsWith("gelu,simd_fused,"));
  EXPECT_THAT(lines.back(), AllOf(StartsWith("gelu,chain_of_loops,"),
                                  HasSubstr(",3,\"chain_of_loops takes 2 kernels a run")));
}

TEST_F(ProfileCliTest, RandomInputsAreTheServersToMake) {
  ASSERT_EQ(Warpcall("profile gelu --shape 64x3 --type bf16 --seed 5").exit_status, 0);
  EXPECT_EQ(profile_.TakeText(),
            "request { kernel: \"gelu\" }"
            " input_specs { data_type: DATA_TYPE_BFLOAT16 shape: 64 shape: 3 } seed: 5");
  // Far more than any memory has, and nothing for this machine.
  ASSERT_EQ(Warpcall("profile gelu --shape 1048576x1048576 --request").exit_status, 0);
  EXPECT_EQ(profile_.TakeText(),
            "request { kernel: \"gelu\" } input_specs { data_type: DATA_TYPE_FLOAT32"
            " shape: 1048576 shape: 1048576 } seed: 1 request_path: true");
}

TEST_F(ProfileCliTest, OfAGraphEachStepHasItsRows) {
  profile_.Set(StepsOnTheCpu);
  describe_.Set(Moves8Megabytes);
  const std::string path = Store("two.json", kLinearAndGelu);
  const std::string line =
      absl::StrCat("profile --graph ", path, " --input w=", x_, " --input x=", x_,
                   " --input b=@0a --device cpu --iterations 3");
  const ProgramResult run = Within(100, line);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith(absl::Substitute(kGraphText, path)));
  const v1::ProfileRequest request = profile_.Take().at(0);
  EXPECT_EQ(request.iterations(), 3);
  EXPECT_FALSE(request.has_request());
  const v1::ExecuteGraphRequest& graph = request.graph();
  ASSERT_EQ(graph.inputs_size(), 3);
  EXPECT_EQ(graph.inputs(0).name(), "x");
  EXPECT_EQ(graph.inputs(1).tensor().data().size(), 16u);
  EXPECT_EQ(graph.inputs(2).tensor().handle(), "0a");
  EXPECT_EQ(graph.device(), "cpu");
  EXPECT_FALSE(graph.outputs(1).keep());
  const v1::DescribeRequest described = describe_.Take().at(0);
  EXPECT_EQ(described.graph().steps_size(), 2);
  EXPECT_EQ(described.graph().inputs(1).tensor().data(), "");

  const json value = WarpcallJson(line);
  EXPECT_EQ(value["kernel"], path);
  EXPECT_EQ(value["figures"]["kernels"], 2);
  EXPECT_EQ(value["rows"][5]["step"], "h");
  EXPECT_THAT(Lines(Warpcall(line + " --csv -").out).at(6),
              AllOf(StartsWith(absl::StrCat(path, ",", path, ",cpu,linear,kernel,")),
                    HasSubstr(",0,h,3,compute,")));
  const std::string trace = folder_.Path("trace.json");
  ASSERT_EQ(Warpcall(absl::StrCat(line, " --trace ", trace)).exit_status, 0);
  EXPECT_EQ(ReadFile(trace), kTrace);
}

TEST_F(ProfileCliTest, TwoGraphsStandSideBySide) {
  profile_.Set(StepsOnTheCpu);
  describe_.Set(Moves8Megabytes);
  const std::string two = Store("two.json", kLinearAndGelu);
  const std::string one = Store("one.json", kOneStep);
  const std::string line = absl::StrCat("profile --graph ", one, " --graph ", two,
                                        " --input x=", x_, " --input w=", x_, " --input b=", x_);
  const ProgramResult run = Warpcall(line);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out,
              StartsWith(absl::StrCat("graphs on cpu by ", one, " (3 iterations) and by ", two,
                                      " (3 iterations)\n", two, " takes 1.98 times as long as ",
                                      one, ".\n- ", two, " takes 2 kernels a run, the other 1: ")));
  const auto requests = profile_.Take();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].graph().device(), "");
  EXPECT_EQ(requests[1].graph().device(), "cpu");
  EXPECT_EQ(requests[1].graph().inputs_size(), 3);
  const json value = WarpcallJson(line);
  EXPECT_FALSE(value.contains("kernel"));
  EXPECT_EQ(value["profiles"][1]["kernel"], two);
  EXPECT_DOUBLE_EQ(value["comparison"]["ratios"]["kernels"].get<double>(), 2);
  ExpectUsageErrors({
      {line + " --input z=" + x_, "--input z="},
      {line + " --trace t", "--trace takes one graph; two are named"},
      {absl::StrCat(line, " --graph ", one), "--graph is given 3 times; 2 can be compared"},
  });
}

TEST_F(ProfileCliTest, AGraphTakesNoOptionsOfAKernel) {
  const std::string path = Store("two.json", kLinearAndGelu);
  const std::string graph = absl::StrCat("profile --graph ", path);
  std::vector<std::pair<std::string, std::string>> lines;
  for (const std::string option : {"--shape 8", "--seed 2", "--request", "--implementation cpu",
                                   "--candidate a.cu", "--attribute axis=1"}) {
    const std::string name = option.substr(0, option.find(' '));
    lines.push_back({absl::StrCat(graph, " ", option), "--graph excludes " + name});
  }
  lines.push_back(
      {"profile gelu --graph " + path, "the kernels of --graph are in its file; leave out 'gelu'"});
  lines.push_back({graph, "input \"x\" has no file"});
  lines.push_back({graph + " --input a=" + x_, "the graph has no input \"a\"; it has x, w, b"});
  lines.push_back({"profile --graph " + folder_.Path("no.json"), "can't read"});
  ExpectUsageErrors(lines);
  EXPECT_THAT(profile_.Take(), IsEmpty());
}

TEST_F(ProfileCliTest, MatricesComeFromMnk) {
  ListSoftmaxAndMatmul();
  ASSERT_EQ(Warpcall("profile matmul --shape 2x3x4").exit_status, 0);
  EXPECT_THAT(profile_.TakeText(),
              HasSubstr("input_specs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 4 }"
                        " input_specs { data_type: DATA_TYPE_FLOAT32 shape: 4 shape: 3 }"));
}

TEST_F(ProfileCliTest, WritesTheTraceAndSaysHowToOpenIt) {
  const std::string trace = folder_.Path("trace.json");
  std::ofstream(trace) << std::string(1000, 'x');
  const auto run = Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", trace));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(profile_.TakeText(), HasSubstr("trace: true"));
  EXPECT_EQ(ReadFile(trace), kTrace);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("in ", trace)));
  EXPECT_THAT(run.err, HasSubstr("https://ui.perfetto.dev"));
  WarpcallJson(absl::StrCat("profile gelu --shape 8 --trace ", trace));
}

TEST_F(ProfileCliTest, AnAnswerWithoutTheTraceIsStatusOne) {
  profile_.Set([](const v1::ProfileRequest&, v1::ProfileResponse*) { return FakeAnswer{}; });
  const auto run =
      Warpcall(absl::StrCat("profile gelu --shape 8 --trace ", folder_.Path("trace.json")));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.err, HasSubstr("the server sent no trace"));
}

TEST_F(ProfileCliTest, ARefusalIsStatusOneAndLeavesTheFolderAsItWas) {
  profile_.Refuse(absl::InvalidArgumentError("iterations is 5000; at most 100"));
  const std::string message = "INVALID_ARGUMENT: iterations is 5000; at most 100\n";
  ExpectRefused("profile gelu --shape 8", message);
  const testing::TempFolder folder;
  ExpectRefused(absl::StrCat("profile gelu --shape 8 --trace ", folder.Path("t")), message);
  EXPECT_THAT(folder.Names(), IsEmpty());
  std::ofstream(folder.Path("t")) << "of yesterday";
  ExpectRefused(absl::StrCat("profile gelu --shape 8 --trace ", folder.Path("t")), message);
  EXPECT_EQ(ReadFile(folder.Path("t")), "of yesterday");
  EXPECT_THAT(folder.Names(), ElementsAre("t"));
}

TEST_F(ProfileCliTest, UsageErrorsAreStatusTwo) {
  const std::string in = absl::StrCat(" --input ", x_);
  ExpectUsageErrors({
      {"profile", "kernel or --graph is required"},
      {"profile gelu", "--input or --shape is required"},
      {absl::StrCat("profile gelu --shape 8", in), "--shape"},
      {"profile gelu --shape '{8,9}'", "has 2 points; only one is taken here"},
      {"profile gelu --shape 8x", "a dimension is"},
      {"profile gelu --shape 8,9", "gelu takes 1 inputs"},
      {"profile gelu --shape 8 --type f8", "--type"},
      {absl::StrCat("profile gelu --type f16", in), "float32"},
      {absl::StrCat("profile gelu --input ", folder_.Path("none.npy")), "none.npy"},
      {"profile gelu --shape 8 --iterations 0", "--iterations"},
      {"profile gelu --shape 8 --iterations 1001", "1001 is not in the range 1 to 1000"},
      {"profile gelu --shape 8 --implementation a --implementation b --implementation c",
       "--implementation is given 3 times; 2 can be compared"},
      {"profile gelu --shape 8 --implementation a --implementation b --trace t",
       "--trace takes one implementation; two are named"},
      {"profile gelu --shape 8 --attribute axis=a", "an integer"},
      {"profile gelu --shape 8 --csv of_nobody --trace ./of_nobody",
       "--csv and --trace name the same file: ./of_nobody"},
      {"profile gelu --shape 8 --seed -1", "-1 is not a whole number"},
      {absl::StrCat("profile gelu --shape 8 --trace ", folder_.Path("no/trace.json")),
       "no/trace.json"},
  });
}

}  // namespace
}  // namespace warpcall::cli
