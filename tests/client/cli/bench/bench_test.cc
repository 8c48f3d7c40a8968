// `warpcall bench` as its users have it.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/client/cli/bench/bench_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(BenchCliTest, AsksForWhatTheCommandLineSays) {
  const auto run = Warpcall(
      "bench softmax --shape 64x128 --type bf16 --implementation cpu --implementation slow_row"
      " --attribute axis=0 --device cpu --iterations 50 --warmup 5 --seed 9");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(benchmark_.TakeText(),
            "kernel: \"softmax\" implementations: \"cpu\" implementations: \"slow_row\""
            " inputs { data_type: DATA_TYPE_BFLOAT16 shape: 64 shape: 128 }"
            " attributes { key: \"axis\" value { int_value: 0 } }"
            " device: \"cpu\" warmup_iterations: 5 iterations: 50 seed: 9");
}

TEST_F(BenchCliTest, NoiseIsAskedForInPercentAndARowsTimeAsADuration) {
  for (const auto& [text, nanoseconds] :
       {std::pair("2.5", 2'500'000'000), {"500ms", 500'000'000}, {"1m30s", 90'000'000'000}}) {
    const auto run =
        Warpcall(absl::StrCat("bench softmax --shape 8 --max-noise 0.5 --timeout ", text));
    ASSERT_EQ(run.exit_status, 0) << run.err;
    EXPECT_THAT(benchmark_.TakeText(),
                HasSubstr(absl::StrCat(" max_noise: 0.005 timeout_ns: ", nanoseconds)));
  }
}

TEST_F(BenchCliTest, InputsAreOfTheFilesTypesAndShapes) {
  const std::string b = folder_.Path("b.npy");
  ASSERT_TRUE(client::WriteNpy(b, client::Tensor::FromFloats({2, 5}, std::vector<float>(10))).ok());
  const auto run = Warpcall(absl::StrCat("bench matmul --input ", x_, " --input ", b));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(benchmark_.TakeText(),
            "kernel: \"matmul\" inputs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 2 }"
            " inputs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 5 } seed: 1");
  EXPECT_THAT(run.out, HasSubstr("\n2x2,2x5 float32 on cpu: "));
}

TEST_F(BenchCliTest, MakesOneCallForEachDeviceTypeAndShape) {
  const auto run = Warpcall(
      "bench matmul --shape '{16..32:x2}x8x4' --shape 2x3,3x5 --type f16 --type f32"
      " --device cpu,cuda:0 --attribute transpose_b=true");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  std::vector<std::string> calls;
  for (const v1::BenchmarkRequest& request : benchmark_.Take()) {
    std::string call = absl::StrCat(request.device(), " ", request.inputs(0).data_type());
    for (const v1::TensorSpec& input : request.inputs())
      absl::StrAppend(&call, " ", absl::StrJoin(input.shape(), "x"));
    calls.push_back(call);
  }
  EXPECT_THAT(calls, ElementsAre("cpu 2 16x4 8x4", "cpu 2 32x4 8x4", "cpu 2 2x3 3x5",
                                 "cpu 1 16x4 8x4", "cpu 1 32x4 8x4", "cpu 1 2x3 3x5",
                                 "cuda:0 2 16x4 8x4", "cuda:0 2 32x4 8x4", "cuda:0 2 2x3 3x5",
                                 "cuda:0 1 16x4 8x4", "cuda:0 1 32x4 8x4", "cuda:0 1 2x3 3x5"));
  EXPECT_THAT(run.out, HasSubstr("on cpu: %COPY of 25.0 GB/s"));
  EXPECT_THAT(run.out, HasSubstr("on cuda:0: %COPY of 25.0 GB/s"));
}

TEST_F(BenchCliTest, OptionsBeforeTheKernelDoNotSwallowIt) {
  const auto run = Warpcall("bench --shape 8 --device cpu,cuda:0 --type f32 softmax");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(benchmark_.Take(), SizeIs(2));
}

TEST_F(BenchCliTest, TheTableHasTheFastestFirstAndFailuresLast) {
  const auto run = Warpcall("bench softmax --shape '{8,16}x32'");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::string table =
      "IMPLEMENTATION   MEDIAN      MIN  NOISE    N     B/s  %COPY  FLOP/s  %MADD    ERROR  OCC  "
      "VS BEST\n"
      "fast_row        1.00 us   999 ns   0.8%  100  8.19 G    25%  4.10 G     0%  1.5e-07  75%  "
      "   1.00\n"
      "middle_row      2.50 us  2.50 us   0.8%  100  3.28 G    25%  1.64 G     0%  1.5e-07  75%  "
      "   2.50\n"
      "slow_row        4.00 us  4.00 us   0.8%  100  2.05 G    25%  1.02 G     0%  1.5e-07  75%  "
      "   4.00\n"
      "picky_row       did not run: takes \"f16\" only, says it\n";
  EXPECT_EQ(
      run.out,
      absl::StrCat("softmax\n\ncpu: a processor, warpcalld 0.1.0\n"
                   "8x32 float32 on cpu: %COPY of 25.0 GB/s, %MADD of 1.20 TFLOP/s\n",
                   table, "\n16x32 float32 on cpu: %COPY of 25.0 GB/s, %MADD of 1.20 TFLOP/s\n",
                   table));
}

TEST_F(BenchCliTest, TheTableSaysHowFarARowCanBeTrusted) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    // slow_row, fast_row, picky_row, middle_row.
    response->mutable_results(0)->set_verdict("not distinguishable from the fastest");
    response->mutable_results(1)->set_unstable(true);
    response->mutable_results(1)->clear_verdict();
    response->mutable_results(1)->set_noise(0.37);
    response->mutable_results(2)->set_predicted_ns(4e9);
    response->mutable_results(2)->set_error("skipped: 4 s are predicted, 1 s is the limit");
    response->mutable_results(3)->set_verdict("fastest");
    response->mutable_results(3)->set_iterations(7);
    response->mutable_results(3)->set_fraction_of_ceiling(1.57);
    return answer;
  });
  const auto run = Warpcall("bench softmax --shape 8x32 --iterations 100");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(4 + 4 + 3)) << run.out;
  EXPECT_THAT(lines[4], AllOf(StartsWith("middle_row"), HasSubstr(" 7* "), HasSubstr(" 157%! "),
                              EndsWith(" 1.00")));
  EXPECT_THAT(lines[5], AllOf(StartsWith("slow_row"), HasSubstr(" 100 "), EndsWith(" ~1.60")));
  EXPECT_THAT(lines[6], AllOf(StartsWith("fast_row"), HasSubstr(" 37.0% "), HasSubstr(" ~")));
  EXPECT_EQ(lines[7], "picky_row       skipped: 4 s are predicted, 1 s is the limit");
  EXPECT_EQ(
      lines[8],
      "* fewer than the 100 samples asked for: the server takes 1 s for a row; --timeout gives it "
      "longer");
  EXPECT_EQ(lines[9],
            "! faster than the copy of this run: the data are cached, or the copy ran under load");
  EXPECT_THAT(lines[10], StartsWith("~ unstable: "));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  // Of several tables the first explains the marks.
  const auto sweep = Warpcall("bench softmax --shape '{8,16}x32' --iterations 100");
  EXPECT_THAT(Lines(sweep.out), SizeIs(4 + 4 + 3 + 2 + 4)) << sweep.out;
}

TEST_F(BenchCliTest, WhatIsFastestBeyondDoubtIsTheBestAlthoughItIsUnstable) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    // slow_row, fast_row, picky_row, middle_row.
    response->mutable_results(0)->set_verdict("slower by 300 %");
    response->mutable_results(1)->set_verdict("fastest");
    response->mutable_results(1)->set_unstable(true);
    return answer;
  });
  const auto run = Warpcall("bench softmax --shape 8x32 --iterations 100");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  EXPECT_THAT(lines[4], AllOf(StartsWith("fast_row"), EndsWith(" 1.00")));
  EXPECT_THAT(lines[5], AllOf(StartsWith("middle_row"), EndsWith(" 2.50")));
  EXPECT_THAT(lines[6], AllOf(StartsWith("slow_row"), EndsWith(" 4.00")));
  EXPECT_THAT(run.out, Not(HasSubstr("unstable")));
}

// The reference, say, is steady on a busy machine, but that does not make it the best.
TEST_F(BenchCliTest, NoRowIsTheBestWhileAnUnstableOneMayBe) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    // slow_row, fast_row, picky_row, middle_row.
    response->mutable_results(1)->set_unstable(true);
    response->mutable_results(1)->clear_verdict();
    response->mutable_results(3)->set_verdict("not distinguishable from the fastest");
    return answer;
  });
  const auto run = Warpcall("bench softmax --shape 8x32 --iterations 100");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(4 + 4 + 2)) << run.out;
  EXPECT_THAT(lines[4], AllOf(StartsWith("fast_row"), EndsWith(" unstable")));
  EXPECT_THAT(lines[5], AllOf(StartsWith("middle_row"), EndsWith(" -")));
  EXPECT_THAT(lines[6], AllOf(StartsWith("slow_row"), EndsWith(" -")));
  EXPECT_THAT(lines[9], StartsWith("VS BEST is unknown: "));
  EXPECT_THAT(Lines(Warpcall("bench softmax --shape 8x32 --csv -").out)[1],
              HasSubstr(",fast_row,"));
}

// Answers like a server whose deadline passes before a row's turn.
FakeAnswer CutByTheDeadline(const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
  const FakeAnswer answer = FourRows(request, response);
  response->mutable_results(1)->set_iterations(7);
  response->mutable_results(2)->set_error(
      "not reached before the call's deadline: allow it more time, or name fewer implementations");
  return answer;
}

TEST_F(BenchCliTest, ADeadlineThatLeftARowOutIsNamedAndIsNoSuccess) {
  benchmark_.Set(CutByTheDeadline);
  const auto run = Warpcall("bench softmax --shape 8x32 --deadline 30");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out,
              HasSubstr("\n* fewer than the 100 samples asked for: hit the point's time limit;"
                        " raise --deadline\n"));
}

TEST_F(BenchCliTest, APointOfWhichNoRowRanIsNoSuccess) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    if (request.inputs(0).shape(0) == 8) return answer;
    for (v1::BenchmarkResult& result : *response->mutable_results()) result.set_error("broken");
    return answer;
  });
  EXPECT_EQ(Warpcall("bench softmax --shape 8x32").exit_status, 0);
  EXPECT_EQ(Warpcall("bench softmax --shape '{8,16}x32'").exit_status, 1);
}

TEST_F(BenchCliTest, JsonOfPointsThatFailedEndsWithAnErrorOnStderr) {
  const auto error_of = [&](const std::string& arguments) {
    const auto run = Warpcall(arguments + " --json");
    EXPECT_EQ(run.exit_status, 1);
    EXPECT_TRUE(json::accept(run.out)) << run.out;
    const std::vector<std::string> lines = Lines(run.err);
    EXPECT_FALSE(lines.empty());
    return lines.empty() ? json() : json::parse(lines.back(), nullptr, false)["error"];
  };
  Refuse("shape: 16");
  EXPECT_EQ(error_of("bench softmax --shape '{8,16,24}x32'"),
            json({{"code", "RESOURCE_EXHAUSTED"},
                  {"message",
                   "1 of 3 points was refused or ended early; the first is 16x32 float32: operands "
                   "of 9 GiB; limit 8"},
                  {"retryable", false},
                  {"retry_after_ms", nullptr},
                  {"request_id", nullptr},
                  {"exit_status", 1}}));
  benchmark_.Set(CutByTheDeadline);
  EXPECT_EQ(error_of("bench softmax --shape 8x32")["code"], "DEADLINE_EXCEEDED");
}

TEST_F(BenchCliTest, SharesOfReadsSaySo) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    if (request.inputs(0).shape(0) > 8) return answer;
    response->set_read_ceiling_bytes_per_second(2.75e10);
    response->mutable_results(0)->set_fraction_of_ceiling(2);
    return answer;
  });
  const std::string csv = folder_.Path("bench.csv");
  const auto run = Warpcall("bench softmax --shape '{8,16}x32' --csv " + csv);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out,
              HasSubstr("8x32 float32 on cpu: %READ of 27.5 GB/s (a copy reaches 25.0 GB/s)"
                        ", %MADD of 1.20 TFLOP/s\nIMPLEMENTATION "));
  EXPECT_THAT(run.out, HasSubstr(" %READ  FLOP/s"));
  EXPECT_THAT(run.out, HasSubstr("\n! faster than the reads of this run: "));
  EXPECT_THAT(run.out, HasSubstr("\n16x32 float32 on cpu: %COPY of 25.0 GB/s, %MADD of 1.20"));
  EXPECT_THAT(run.out, HasSubstr(" %COPY  FLOP/s"));
  const std::vector<std::string> lines = Lines(ReadFile(csv));
  EXPECT_THAT(lines[0], EndsWith(",read_ceiling_bytes_per_second"));
  EXPECT_THAT(lines[1], EndsWith(",2.75e+10"));
  EXPECT_THAT(lines[5], EndsWith(","));
  const json points = WarpcallJson("bench softmax --shape '{8,16}x32'")["points"];
  EXPECT_EQ(points[0]["read_ceiling_bytes_per_second"], 2.75e10);
  EXPECT_EQ(points[0]["ceiling_bytes_per_second"], 2.5e10);
  EXPECT_EQ(points[0]["results"][0]["fraction_of_ceiling"], 2);
  EXPECT_EQ(points[1]["read_ceiling_bytes_per_second"], nullptr);
}

TEST_F(BenchCliTest, ACeilingThatHasNotComeIsNoNumber) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    response->clear_ceiling_bytes_per_second();
    response->clear_flops_ceiling();
    return answer;
  });
  const std::string csv = folder_.Path("bench.csv");
  const json point = WarpcallJson("bench softmax --shape 8x32 --csv " + csv)["points"][0];
  EXPECT_EQ(point["ceiling_bytes_per_second"], nullptr);
  EXPECT_EQ(point["flops_ceiling"], nullptr);
  EXPECT_THAT(ReadFile(csv), HasSubstr("\nsoftmax,8x32,float32,cpu,,fast_row,"));
}

TEST_F(BenchCliTest, InputsFromStdinAreReadOnceForAllDevices) {
  const auto run = Warpcall("bench softmax --input - --device cpu,cuda:0 <" + x_);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const auto requests = benchmark_.Take();
  ASSERT_THAT(requests, SizeIs(2));
  for (const v1::BenchmarkRequest& request : requests)
    EXPECT_THAT(Text(request),
                HasSubstr("inputs { data_type: DATA_TYPE_FLOAT32 shape: 2 shape: 2 }"));
}

TEST_F(BenchCliTest, FewerSamplesAreNoCutWhereTheyAreExactEnough) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    for (v1::BenchmarkResult& result : *response->mutable_results()) result.set_iterations(7);
    return answer;
  });
  EXPECT_THAT(Warpcall("bench softmax --shape 8 --max-noise 0.8").out, Not(HasSubstr("*")));
  EXPECT_THAT(Warpcall("bench softmax --shape 8 --max-noise 0.7").out, HasSubstr(" 7* "));
  EXPECT_THAT(Warpcall("bench softmax --shape 8 --iterations 7").out, Not(HasSubstr("*")));
}

TEST_F(BenchCliTest, ARefusedPointStandsInItsPlaceAndTheSweepGoesOn) {
  Refuse("shape: 16");
  const std::string csv = folder_.Path("bench.csv");
  const auto run = Warpcall(absl::StrCat("bench softmax --shape '{8,16,24}x32' --csv ", csv));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(benchmark_.Take(), SizeIs(3));
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(2 + 6 + 1 + 6)) << run.out;
  EXPECT_EQ(lines[8], "16x32 float32: refused: RESOURCE_EXHAUSTED: operands of 9 GiB; limit 8");
  EXPECT_THAT(lines[9], StartsWith("24x32 float32 on cpu: "));
  EXPECT_THAT(ReadFile(csv),
              HasSubstr("\nsoftmax,16x32,float32,,,,,RESOURCE_EXHAUSTED: operands of 9 GiB;"
                        " limit 8,,,"));
  const json points = WarpcallJson("bench softmax --shape '{8,16}x32'", 1)["points"];
  EXPECT_EQ(points[0]["error"], nullptr);
  EXPECT_EQ(points[1]["error"]["code"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(points[1]["error"]["message"], "operands of 9 GiB; limit 8");
  EXPECT_THAT(points[1]["results"], IsEmpty());
}

TEST_F(BenchCliTest, JsonHasEverything) {
  json value = WarpcallJson(
      "bench softmax --shape 8x32 --type bf16 --attribute axis=1 --iterations 20"
      " --max-noise 0.5 --timeout 2");
  json results = std::exchange(value["points"][0]["results"], nullptr);
  EXPECT_EQ(std::exchange(value["server"]["address"], nullptr), server_.address());
  EXPECT_EQ(std::exchange(value["client_version"], nullptr), Version());
  EXPECT_EQ(value, json::parse(R"({
    "kernel": "softmax", "attributes": {"axis": 1}, "iterations": 20, "warmup_iterations": null,
    "seed": 1, "max_noise": 0.005, "timeout_ns": 2000000000, "method": null, "client_version": null,
    "server": {"address": null, "host": null, "version": null}, "points": [{
      "shape": "8x32", "data_type": "bfloat16",
      "inputs": [{"data_type": "bfloat16", "shape": [8, 32]}],
      "device": "cpu", "device_kind": "cpu", "error": null, "ceiling_bytes_per_second": 2.5e10,
      "flops_ceiling": 1.2e12, "read_ceiling_bytes_per_second": null, "results": null,
      "stamp": {"device_description": "a processor", "driver": "", "cuda": "",
                "server_version": "0.1.0", "seed": 1, "sm_clock_mhz_min": 0,
                "sm_clock_mhz_max": 0, "memory_clock_mhz": 0, "temperature_celsius": 0,
                "power_watts": 0.0, "throttle_reasons": [], "samples_dropped": 0,
                "started_unix_ns": 1700000000000000000, "idle_power_watts": 0.0}}]})"));
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[1], json::parse(R"({
    "implementation": "fast_row", "family": "cpu", "mean_ns": 1000.3333333333334,
    "median_ns": 1000, "min_ns": 999, "p10_ns": 999.5, "p90_ns": 2000, "median_low_ns": 990,
    "median_high_ns": 1020, "noise": 0.0077, "unstable": false, "verdict": "fastest",
    "predicted_ns": 0, "bytes_per_second": 8.192e9, "flops_per_second": 4.096e9,
    "fraction_of_ceiling": 0.25, "relative_error": 1.5e-7, "max_error": 0.25,
    "checked_elements": 1024, "iterations": 100, "launches_per_iteration": 3, "error": "",
    "settled_clock_mhz": 0,
    "settled_power_watts": 0, "settled_temperature_celsius": 0, "energy_joules": 0,
    "notes": [],
    "launch": {"bytes_moved": 8192, "flops": 4096, "theoretical_occupancy": 0.75, "waves": 1.5,
               "gpu_kernels": 1, "variant": ""}})"));
  EXPECT_EQ(results[2]["error"], "takes \"f16\" only, says it");
}

TEST_F(BenchCliTest, JsonAndCsvCarryTheStampOfAGpu) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    testing::Merge(R"(stamp { driver: "580.95" cuda: "13.0" sm_clock_mhz_min: 1700
                              sm_clock_mhz_max: 1980 memory_clock_mhz: 2619
                              temperature_celsius: 45 power_watts: 512.5
                              throttle_reasons: "power" throttle_reasons: "heat"
                              samples_dropped: 3 })",
                   response);
    response->mutable_results(1)->set_fraction_of_ceiling(2);
    return answer;
  });
  const std::string csv = folder_.Path("bench.csv");
  json value = WarpcallJson(absl::StrCat("bench softmax --shape 8 --attribute axis=0 --csv ", csv));
  EXPECT_EQ(value["points"][0]["stamp"], json::parse(R"({
    "device_description": "a processor", "driver": "580.95", "cuda": "13.0",
    "server_version": "0.1.0", "seed": 1, "sm_clock_mhz_min": 1700, "sm_clock_mhz_max": 1980,
    "memory_clock_mhz": 2619, "temperature_celsius": 45, "power_watts": 512.5,
    "throttle_reasons": ["power", "heat"], "samples_dropped": 3,
    "started_unix_ns": 1700000000000000000, "idle_power_watts": 0.0})"));
  const json notes = value["points"][0]["results"][1]["notes"];
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0].get<std::string>(), HasSubstr("faster than the copy"));
  const std::vector<std::string> lines = Lines(ReadFile(csv));
  EXPECT_THAT(lines[1], EndsWith(absl::StrCat(
                            ",axis=0,1,1.2e+12,,cpu,a processor,580.95,13.0,0.1.0,", Version(),
                            ",1700,1980,2619,45,512.5,power; heat,3,1700000000000000000,,,,,,,")));
}

TEST_F(BenchCliTest, ASettledRunTellsClockPowerAndEnergy) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    response->set_method(request.method());
    testing::Merge(R"(settled_clock_mhz: 1650 settled_power_watts: 698.44
                      settled_temperature_celsius: 61 energy_joules: 0.0125)",
                   response->mutable_results(1));
    response->mutable_stamp()->set_idle_power_watts(91.5);
    return answer;
  });
  const std::string csv = folder_.Path("bench.csv");
  const auto run =
      Warpcall(absl::StrCat("bench softmax --shape 8x32 --method settled --csv ", csv));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  EXPECT_THAT(lines[3], HasSubstr(" MHz      W    mJ  FLOP/CYCLE"));
  EXPECT_THAT(lines[4], AllOf(StartsWith("fast_row"), HasSubstr("1650  698.4  12.5       2.482")));
  EXPECT_THAT(lines[5], HasSubstr("    -      -     -           -"));
  EXPECT_THAT(Lines(ReadFile(csv))[1], EndsWith(",settled,1650,698.44,61,0.0125,91.5,"));
  const json value = WarpcallJson("bench softmax --shape 8x32 --method settled");
  EXPECT_EQ(value["method"], "settled");
  EXPECT_EQ(value["points"][0]["stamp"]["idle_power_watts"], 91.5);
  EXPECT_EQ(value["points"][0]["results"][1]["energy_joules"], 0.0125);
}

TEST_F(BenchCliTest, ASettledRunHasItsOwnLimits) {
  for (const char* option : {"--iterations 9", "--max-noise 1", "--timeout 2"})
    EXPECT_EQ(
        Warpcall(absl::StrCat("bench softmax --shape 8 --method settled ", option)).exit_status, 2)
        << option;
  EXPECT_EQ(Warpcall("bench softmax --shape 8 --method cold").exit_status, 2);
}

TEST_F(BenchCliTest, TheServersHostStandsInEveryOutput) {
  server_.AnswerServerInfo([](v1::ServerInfoResponse* response) {
    testing::Merge(R"(version: "0.1.7" hostname: "box")", response);
    return absl::OkStatus();
  });
  const std::string csv = folder_.Path("bench.csv");
  const std::string plot = folder_.Path("bench.svg");
  const auto run =
      Warpcall(absl::StrCat("bench softmax --shape 8x32 --csv ", csv, " --plot ", plot));
  EXPECT_THAT(run.out, HasSubstr("\ncpu: a processor, host box, warpcalld 0.1.0\n"));
  EXPECT_THAT(ReadFile(csv), HasSubstr(",box,cpu,a processor,"));
  EXPECT_THAT(ReadFile(plot), HasSubstr(">host box; cpu: a processor; warpcalld 0.1.7; 2023"));
  const json server = WarpcallJson("bench softmax --shape 8x32")["server"];
  EXPECT_EQ(server["host"], "box");
  EXPECT_EQ(server["version"], "0.1.7");
}

TEST_F(BenchCliTest, CsvHasALineForEachResultInFullPrecision) {
  const auto run = Warpcall("bench matmul --shape 2x3,3x5 --csv -");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(1 + 4));
  EXPECT_EQ(
      lines[0],
      "kernel,shape,data_type,device,ceiling_bytes_per_second,implementation,family,error,"
      "mean_ns,median_ns,min_ns,p90_ns,bytes_per_second,flops_per_second,"
      "fraction_of_ceiling,relative_error,checked_elements,iterations,"
      "launches_per_iteration,bytes_moved,flops,theoretical_occupancy,waves,gpu_kernels,"
      "p10_ns,median_low_ns,median_high_ns,noise,unstable,verdict,max_error,predicted_ns,"
      "notes,variant,attributes,seed,flops_ceiling,host,device_kind,device_description,"
      "driver,cuda,server_version,client_version,sm_clock_mhz_min,sm_clock_mhz_max,memory_"
      "clock_mhz,"
      "temperature_celsius,power_watts,throttle_reasons,samples_dropped,started_unix_ns,method,"
      "settled_clock_mhz,settled_power_watts,settled_temperature_celsius,energy_joules,"
      "idle_power_watts,read_ceiling_bytes_per_second");
  const std::string conditions = absl::StrCat(",,,1,1.2e+12,,cpu,a processor,,,0.1.0,", Version(),
                                              ",,,,,,,0,1700000000000000000,,,,,,,");
  EXPECT_EQ(lines[1],
            absl::StrCat(
                "matmul,\"2x3,3x5\",float32,cpu,2.5e+10,fast_row,cpu,,1000.3333333333334,1000,999,"
                "2000,8.192e+09,4.096e+09,0.25,1.5e-07,1024,100,3,8192,4096,0.75,1.5,1,999.5,990,"
                "1020,0.0077,false,fastest,0.25,,",
                conditions));
  EXPECT_EQ(lines[4], absl::StrCat("matmul,\"2x3,3x5\",float32,cpu,2.5e+10,picky_row,library,"
                                   "\"takes \"\"f16\"\" only, says it\",,,,,,,,,,,,,,,,,,,,,,,,,",
                                   conditions));
}

TEST_F(BenchCliTest, FilesAreReplacedBesideTheTable) {
  const std::string csv = folder_.Path("bench.csv");
  const std::string plot = folder_.Path("bench.svg");
  std::ofstream(csv) << std::string(100'000, 'x');
  const auto run = Warpcall(
      absl::StrCat("bench softmax --shape '8x{32..128:x2}' --csv ", csv, " --plot ", plot));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("VS BEST"));
  EXPECT_THAT(Lines(ReadFile(csv)), SizeIs(1 + 3 * 4));
  EXPECT_THAT(ReadFile(csv), Not(HasSubstr("xxx")));
  EXPECT_THAT(folder_.Names(), ElementsAre("bench.csv", "bench.svg", "x.npy"));
  EXPECT_THAT(ReadFile(plot), HasSubstr(">fast_row</text>"));
  EXPECT_EQ(RunProgram(absl::StrCat("python3 -c 'import sys, xml.dom.minidom as x; "
                                    "x.parse(sys.argv[1])' ",
                                    plot))
                .exit_status,
            0);
}

TEST_F(BenchCliTest, UsageErrorsAreStatusTwoBeforeAnythingIsMeasured) {
  ExpectUsageErrors({
      {"bench", "required"},
      {"bench softmax", "--shape"},
      {"bench softmax --shape 8 --type f64", "--type"},
      {"bench softmax --shape '{1..4}'", "'--shape {1..4}'"},
      {"bench softmax --shape 8 --iterations 0", "--iterations"},
      {"bench softmax --shape 8 --iterations 100001", "100001 is not in the range 1 to 100000"},
      {"bench softmax --shape 8 --warmup 100001", "100001 is not in the range 1 to 100000"},
      {"bench softmax --shape 8 --warmup -1", "--warmup"},
      {"bench softmax --shape 8 --deadline 0", "--deadline"},
      {"bench softmax --shape 8 --attribute axis=last", "an integer"},
      {"bench softmax --shape 8,9", "softmax takes 1 inputs"},
      {"bench matmul --shape 8x9", "give MxNxK"},
      {"bench softmax --shape 8 --json --csv -", "--csv -"},
      {"bench softmax --shape 8 --json --plot -", "--json and --plot - both want stdout"},
      {"bench softmax --shape 8 --csv - --plot -", "--csv - and --plot - both want stdout"},
      {absl::StrCat("bench softmax --shape 8 --csv ", folder_.Path("a"), " --plot ",
                    folder_.Path("./a")),
       "--csv and --plot name the same file"},
      // Neither path exists; both are relative to the command's folder.
      {"bench softmax --shape 8 --csv of_nobody.csv --plot ./of_nobody.csv",
       "--csv and --plot name the same file: ./of_nobody.csv"},
      {absl::StrCat("bench softmax --shape 8 --csv ", x_, " --baseline ", x_),
       "--csv and --baseline name the same file"},
      {"bench softmax --shape 8 --timeout soon", "--timeout soon: it must be 0.001 to 86400"},
      {"bench softmax --shape 8 --timeout 0", "--timeout 0: it must be"},
      {"bench softmax --shape 8 --timeout inf", "--timeout inf: it must be"},
      {"bench softmax --shape 8 --max-noise 0", "--max-noise"},
      {"bench softmax --shape 8 --seed -1",
       "--seed: -1 is not a whole number from 0 to 18446744073709551615"},
      {absl::StrCat("bench softmax --shape 8 --input ", x_), "--shape excludes --input"},
      {absl::StrCat("bench softmax --type f32 --type f16 --input ", x_), "--type is given 2 times"},
      {absl::StrCat("bench softmax --input ", folder_.Path("no.npy")), "no.npy"},
      {absl::StrCat("bench softmax --shape 8 --csv ", folder_.Path("no/bench.csv")),
       "no/bench.csv"},
      {absl::StrCat("bench softmax --shape 8 --plot ", folder_.Path("no/bench.svg")),
       "no/bench.svg"},
      {"bench softmax --shape '{1..200:+1}' --type f32 --type f16",
       "200 shapes (--shape) of 2 types (--type) on 1 devices (--device) are 400 points; at most"
       " 256"},
  });
  EXPECT_THAT(benchmark_.Take(), IsEmpty());
}

TEST_F(BenchCliTest, AKernelThatTheServerDoesNotListIsRefusedBeforeAnythingIsMeasured) {
  ExpectRefused("bench conv --shape 8",
                "NOT_FOUND: kernel \"conv\" is unknown; available: softmax, matmul\n");
  EXPECT_THAT(benchmark_.Take(), IsEmpty());
}

TEST_F(BenchCliTest, HelpSaysWhatShapesAre) {
  const auto run = Warpcall("bench --help");
  EXPECT_EQ(run.exit_status, 0);
  for (const char* text : {"MxNxK", "{256..262144:x2}", "transpose_b", "%COPY", "%READ",
                           "The values are always random"})
    EXPECT_THAT(run.out, HasSubstr(text));
}

}  // namespace
}  // namespace warpcall::cli
