// `warpcall bench` as its users have it.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/client/cli/cli_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

void AddResult(const std::string& implementation, double median_ns,
               v1::BenchmarkResponse* response) {
  v1::BenchmarkResult* result = response->add_results();
  result->set_implementation(implementation);
  result->set_family("cpu");
  result->set_mean_ns(median_ns + 1.0 / 3);
  result->set_median_ns(median_ns);
  result->set_min_ns(median_ns - 1);
  result->set_p90_ns(median_ns * 2);
  result->set_bytes_per_second(8192 * 1e9 / median_ns);
  result->set_flops_per_second(4096 * 1e9 / median_ns);
  result->set_fraction_of_ceiling(0.25);
  testing::Merge(
      R"(relative_error: 1.5e-7 checked_elements: 1024 iterations: 100 launches_per_iteration: 3
         launch { bytes_moved: 8192 flops: 4096 theoretical_occupancy: 0.75 waves: 1.5
                  gpu_kernels: 1 })",
      result);
}

// Three rows, the fastest of which is not the first, and one that does not run.
FakeAnswer FourRows(const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
  response->set_device(request.device().empty() ? "cpu" : request.device());
  response->set_ceiling_bytes_per_second(2.5e10);
  AddResult("slow_row", 4000, response);
  AddResult("fast_row", 1000, response);
  testing::Merge(R"(implementation: "picky_row" family: "library"
                    error: "takes \"f16\" only, says it")",
                 response->add_results());
  AddResult("middle_row", 2500, response);
  return {};
}

class BenchCliTest : public CliTest {
 protected:
  BenchCliTest() {
    ListSoftmaxAndMatmul();
    server_.AnswerBenchmark(std::ref(benchmark_));
  }

  // Requests whose text has `part` in it are refused.
  void Refuse(const std::string& part) {
    benchmark_.Set([part](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
      if (Text(request).find(part) == std::string::npos) return FourRows(request, response);
      return FakeAnswer{absl::ResourceExhaustedError("operands of 9 GiB; limit 8"), std::nullopt};
    });
  }

  Script<v1::BenchmarkRequest, v1::BenchmarkResponse> benchmark_{FourRows};
};

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
  EXPECT_THAT(run.out, HasSubstr("DEVICE"));
  EXPECT_THAT(run.out, HasSubstr("on cpu: measured copy ceiling 25.0 GB/s"));
  EXPECT_THAT(run.out, HasSubstr("on cuda:0: measured copy ceiling 25.0 GB/s"));
}

TEST_F(BenchCliTest, OptionsBeforeTheKernelDoNotSwallowIt) {
  const auto run = Warpcall("bench --shape 8 --device cpu,cuda:0 --type f32 softmax");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(benchmark_.Take(), SizeIs(2));
}

TEST_F(BenchCliTest, TheTableHasTheFastestFirstAndFailuresLast) {
  const auto run = Warpcall("bench softmax --shape '{8,16}x32'");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(
      run.out,
      "softmax\n"
      "on cpu: measured copy ceiling 25.0 GB/s, read plus written (100% of %COPY)\n"
      "\n"
      "SHAPE  TYPE  IMPLEMENTATION  FAMILY    MEDIAN      P90        B/s  %COPY        FLOP/s  OCC"
      "  WAVES    ERROR  VS BEST\n"
      "8x32   f32   fast_row        cpu      1.00 us  2.00 us  8.19 GB/s    25%  4.10 GFLOP/s  75%"
      "   1.50  1.5e-07     1.00\n"
      "             middle_row      cpu      2.50 us  5.00 us  3.28 GB/s    25%  1.64 GFLOP/s  75%"
      "   1.50  1.5e-07     2.50\n"
      "             slow_row        cpu      4.00 us  8.00 us  2.05 GB/s    25%  1.02 GFLOP/s  75%"
      "   1.50  1.5e-07     4.00\n"
      "             picky_row       library  did not run: takes \"f16\" only, says it\n"
      "16x32  f32   fast_row        cpu      1.00 us  2.00 us  8.19 GB/s    25%  4.10 GFLOP/s  75%"
      "   1.50  1.5e-07     1.00\n"
      "             middle_row      cpu      2.50 us  5.00 us  3.28 GB/s    25%  1.64 GFLOP/s  75%"
      "   1.50  1.5e-07     2.50\n"
      "             slow_row        cpu      4.00 us  8.00 us  2.05 GB/s    25%  1.02 GFLOP/s  75%"
      "   1.50  1.5e-07     4.00\n"
      "             picky_row       library  did not run: takes \"f16\" only, says it\n");
}

TEST_F(BenchCliTest, ARefusedPointStandsInItsPlaceAndTheSweepGoesOn) {
  Refuse("shape: 16");
  const std::string csv = folder_.Path("bench.csv");
  const auto run = Warpcall(absl::StrCat("bench softmax --shape '{8,16,24}x32' --csv ", csv));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(benchmark_.Take(), SizeIs(3));
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(3 + 4 + 1 + 4));
  EXPECT_EQ(lines[7], "16x32  f32   refused: RESOURCE_EXHAUSTED: operands of 9 GiB; limit 8");
  EXPECT_THAT(lines[8], HasSubstr("24x32"));
  EXPECT_THAT(ReadFile(csv),
              HasSubstr("\nsoftmax,16x32,f32,,,,,RESOURCE_EXHAUSTED: operands of 9 GiB;"
                        " limit 8,,,"));
  const json points = WarpcallJson("bench softmax --shape '{8,16}x32'", 1)["points"];
  EXPECT_EQ(points[0]["error"], nullptr);
  EXPECT_EQ(points[1]["error"],
            json({{"code", "RESOURCE_EXHAUSTED"}, {"message", "operands of 9 GiB; limit 8"}}));
  EXPECT_THAT(points[1]["results"], IsEmpty());
}

TEST_F(BenchCliTest, JsonHasEverything) {
  json value =
      WarpcallJson("bench softmax --shape 8x32 --type bf16 --attribute axis=1 --iterations 20");
  json results = std::exchange(value["points"][0]["results"], nullptr);
  EXPECT_EQ(value, json::parse(R"({
    "kernel": "softmax", "attributes": {"axis": 1}, "iterations": 20, "warmup_iterations": null,
    "seed": 1, "points": [{
      "shape": "8x32", "data_type": "bf16", "inputs": [{"data_type": "bfloat16", "shape": [8, 32]}],
      "device": "cpu", "error": null, "ceiling_bytes_per_second": 2.5e10, "results": null}]})"));
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[1], json::parse(R"({
    "implementation": "fast_row", "family": "cpu", "mean_ns": 1000.3333333333334,
    "median_ns": 1000, "min_ns": 999, "p90_ns": 2000, "bytes_per_second": 8.192e9,
    "flops_per_second": 4.096e9, "fraction_of_ceiling": 0.25, "relative_error": 1.5e-7,
    "checked_elements": 1024, "iterations": 100, "launches_per_iteration": 3, "error": "",
    "launch": {"bytes_moved": 8192, "flops": 4096, "theoretical_occupancy": 0.75, "waves": 1.5,
               "gpu_kernels": 1}})"));
  EXPECT_EQ(results[2]["error"], "takes \"f16\" only, says it");
}

TEST_F(BenchCliTest, CsvHasALineForEachResultInFullPrecision) {
  const auto run = Warpcall("bench matmul --shape 2x3,3x5 --csv -");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(1 + 4));
  EXPECT_EQ(lines[0],
            "kernel,shape,data_type,device,ceiling_bytes_per_second,implementation,family,error,"
            "mean_ns,median_ns,min_ns,p90_ns,bytes_per_second,flops_per_second,"
            "fraction_of_ceiling,relative_error,checked_elements,iterations,"
            "launches_per_iteration,bytes_moved,flops,theoretical_occupancy,waves,gpu_kernels");
  EXPECT_EQ(lines[1],
            "matmul,\"2x3,3x5\",f32,cpu,2.5e+10,fast_row,cpu,,1000.3333333333334,1000,999,2000,"
            "8.192e+09,4.096e+09,0.25,1.5e-07,1024,100,3,8192,4096,0.75,1.5,1");
  EXPECT_EQ(lines[4],
            "matmul,\"2x3,3x5\",f32,cpu,2.5e+10,picky_row,library,"
            "\"takes \"\"f16\"\" only, says it\",,,,,,,,,,,,,,,,");
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
      {"bench softmax --shape 8 --iterations 2147483648", "--iterations"},
      {"bench softmax --shape 8 --warmup -1", "--warmup"},
      {"bench softmax --shape 8 --deadline 0", "--deadline"},
      {"bench softmax --shape 8 --attribute axis=last", "an integer"},
      {"bench softmax --shape 8,9", "softmax takes 1 inputs"},
      {"bench matmul --shape 8x9", "give MxNxK"},
      {"bench softmax --shape 8 --json --csv -", "--csv -"},
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

TEST_F(BenchCliTest, AnUnknownKernelIsTheServersToRefuse) {
  Refuse("conv");
  const auto run = Warpcall("bench conv --shape 8");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("8      f32   refused: RESOURCE_EXHAUSTED"));
}

TEST_F(BenchCliTest, HelpSaysWhatShapesAre) {
  const auto run = Warpcall("bench --help");
  EXPECT_EQ(run.exit_status, 0);
  for (const char* text : {"MxNxK", "{256..262144:x2}", "transpose_b", "%COPY"})
    EXPECT_THAT(run.out, HasSubstr(text));
}

}  // namespace
}  // namespace warpcall::cli
