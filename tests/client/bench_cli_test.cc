// `warpcall bench` as its users have it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "tests/client/fake_server.h"
#include "tests/client/subprocess.h"
#include "tests/client/temp_folder.h"
#include "tests/programs.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using warpcall::testing::FakeAnswer;
using warpcall::testing::FakeServer;
using warpcall::testing::ProgramPath;
using warpcall::testing::ProgramResult;
using warpcall::testing::RunProgram;

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
  result->set_relative_error(1.5e-7);
  result->set_checked_elements(1024);
  result->set_iterations(100);
  result->set_launches_per_iteration(3);
  result->mutable_launch()->set_bytes_moved(8192);
  result->mutable_launch()->set_flops(4096);
  result->mutable_launch()->set_theoretical_occupancy(0.75);
  result->mutable_launch()->set_waves(1.5);
  result->mutable_launch()->set_gpu_kernels(1);
}

// Three rows, the fastest of which is not the first, and one that does not run.
FakeAnswer FourRows(const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
  response->set_device(request.device().empty() ? "cpu" : request.device());
  response->set_ceiling_bytes_per_second(2.5e10);
  AddResult("slow_row", 4000, response);
  AddResult("fast_row", 1000, response);
  v1::BenchmarkResult* failed = response->add_results();
  failed->set_implementation("picky_row");
  failed->set_family("library");
  failed->set_error("takes \"f16\" only, says it");
  AddResult("middle_row", 2500, response);
  return {};
}

class BenchCliTest : public ::testing::Test {
 protected:
  BenchCliTest() : server_(warpcall::testing::EchoInputs) {
    server_.AnswerListKernels([](v1::ListKernelsResponse* response) {
      v1::KernelInfo* softmax = response->add_kernels();
      softmax->set_name("softmax");
      softmax->add_input_names("x");
      v1::AttributeInfo* axis = softmax->add_attributes();
      axis->set_name("axis");
      axis->mutable_default_value()->set_int_value(-1);
      v1::KernelInfo* matmul = response->add_kernels();
      matmul->set_name("matmul");
      matmul->add_input_names("a");
      matmul->add_input_names("b");
      v1::AttributeInfo* transpose = matmul->add_attributes();
      transpose->set_name("transpose_b");
      transpose->mutable_default_value()->set_bool_value(false);
      return absl::OkStatus();
    });
    server_.AnswerBenchmark([this](const v1::BenchmarkRequest& request,
                                   v1::BenchmarkResponse* response) {
      absl::MutexLock lock(&mutex_);
      seen_.push_back(request);
      if (!refused_.empty() && request.ShortDebugString().find(refused_) != std::string::npos)
        return FakeAnswer{absl::ResourceExhaustedError("operands of 9 GiB; limit 8"), std::nullopt};
      return FourRows(request, response);
    });
  }

  ProgramResult Warpcall(const std::string& arguments) {
    return RunProgram(absl::StrCat("WARPCALL_SERVER=", server_.address(), " '",
                                   ProgramPath("warpcall"), "' ", arguments));
  }

  std::vector<v1::BenchmarkRequest> seen() {
    absl::MutexLock lock(&mutex_);
    return seen_;
  }
  // Requests whose text has `part` in it are refused.
  void Refuse(const std::string& part) {
    absl::MutexLock lock(&mutex_);
    refused_ = part;
  }

  const warpcall::testing::TempFolder folder_;
  absl::Mutex mutex_;
  std::vector<v1::BenchmarkRequest> seen_ ABSL_GUARDED_BY(mutex_);
  std::string refused_ ABSL_GUARDED_BY(mutex_);
  FakeServer server_;
};

std::string Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST_F(BenchCliTest, AsksForWhatTheCommandLineSays) {
  const auto run = Warpcall(
      "bench softmax --shape 64x128 --type bf16 --implementation cpu --implementation slow_row"
      " --attribute axis=0 --device cpu --iterations 50 --warmup 5 --seed 9");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  ASSERT_THAT(seen(), SizeIs(1));
  const v1::BenchmarkRequest request = seen()[0];
  EXPECT_EQ(request.kernel(), "softmax");
  EXPECT_THAT(request.implementations(), ElementsAre("cpu", "slow_row"));
  ASSERT_EQ(request.inputs_size(), 1);
  EXPECT_EQ(request.inputs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_THAT(request.inputs(0).shape(), ElementsAre(64, 128));
  EXPECT_EQ(request.attributes().at("axis").int_value(), 0);
  EXPECT_EQ(request.device(), "cpu");
  EXPECT_EQ(request.iterations(), 50);
  EXPECT_EQ(request.warmup_iterations(), 5);
  EXPECT_EQ(request.seed(), 9u);
}

TEST_F(BenchCliTest, MakesOneCallForEachDeviceTypeAndShape) {
  const auto run = Warpcall(
      "bench matmul --shape '{16..32:x2}x8x4' --shape 2x3,3x5 --type f16 --type f32"
      " --device cpu,cuda:0 --attribute transpose_b=true");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  std::vector<std::string> calls;
  for (const v1::BenchmarkRequest& request : seen()) {
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
  EXPECT_THAT(seen(), SizeIs(2));
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
  auto run = Warpcall(absl::StrCat("bench softmax --shape '{8,16,24}x32' --csv ", csv));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(seen(), SizeIs(3));
  const std::vector<std::string> lines = Lines(run.out);
  ASSERT_THAT(lines, SizeIs(3 + 4 + 1 + 4));
  EXPECT_EQ(lines[7], "16x32  f32   refused: RESOURCE_EXHAUSTED: operands of 9 GiB; limit 8");
  EXPECT_THAT(lines[8], HasSubstr("24x32"));
  EXPECT_THAT(Load(csv), HasSubstr("\nsoftmax,16x32,f32,,,,,RESOURCE_EXHAUSTED: operands of 9 GiB;"
                                   " limit 8,,,"));
  run = Warpcall("bench softmax --shape '{8,16}x32' --json");
  EXPECT_EQ(run.exit_status, 1);
  const json points = json::parse(run.out)["points"];
  EXPECT_EQ(points[0]["error"], nullptr);
  EXPECT_EQ(points[1]["error"]["code"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(points[1]["error"]["message"], "operands of 9 GiB; limit 8");
  EXPECT_THAT(points[1]["results"], IsEmpty());
}

TEST_F(BenchCliTest, JsonHasEverything) {
  const auto run =
      Warpcall("bench softmax --shape 8x32 --type bf16 --attribute axis=1 --iterations 20 --json");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const json value = json::parse(run.out);
  EXPECT_EQ(value["kernel"], "softmax");
  EXPECT_EQ(value["attributes"], json({{"axis", 1}}));
  EXPECT_EQ(value["iterations"], 20);
  EXPECT_EQ(value["warmup_iterations"], nullptr);
  EXPECT_EQ(value["seed"], 1);
  ASSERT_EQ(value["points"].size(), 1u);
  const json& point = value["points"][0];
  EXPECT_EQ(point["shape"], "8x32");
  EXPECT_EQ(point["data_type"], "bf16");
  EXPECT_EQ(point["inputs"], json::parse(R"([{"data_type": "bfloat16", "shape": [8, 32]}])"));
  EXPECT_EQ(point["device"], "cpu");
  EXPECT_EQ(point["ceiling_bytes_per_second"], 2.5e10);
  ASSERT_EQ(point["results"].size(), 4u);
  const json& result = point["results"][1];
  EXPECT_EQ(result["implementation"], "fast_row");
  EXPECT_EQ(result["family"], "cpu");
  EXPECT_EQ(result["mean_ns"], 1000 + 1.0 / 3);
  EXPECT_EQ(result["median_ns"], 1000);
  EXPECT_EQ(result["min_ns"], 999);
  EXPECT_EQ(result["p90_ns"], 2000);
  EXPECT_EQ(result["bytes_per_second"], 8.192e9);
  EXPECT_EQ(result["flops_per_second"], 4.096e9);
  EXPECT_EQ(result["fraction_of_ceiling"], 0.25);
  EXPECT_EQ(result["relative_error"], 1.5e-7);
  EXPECT_EQ(result["checked_elements"], 1024);
  EXPECT_EQ(result["iterations"], 100);
  EXPECT_EQ(result["launches_per_iteration"], 3);
  EXPECT_EQ(result["launch"]["bytes_moved"], 8192);
  EXPECT_EQ(result["launch"]["waves"], 1.5);
  EXPECT_EQ(result["error"], "");
  EXPECT_EQ(point["results"][2]["error"], "takes \"f16\" only, says it");
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
  EXPECT_THAT(Lines(Load(csv)), SizeIs(1 + 3 * 4));
  EXPECT_THAT(Load(csv), Not(HasSubstr("xxx")));
  EXPECT_THAT(folder_.Names(), ElementsAre("bench.csv", "bench.svg"));
  EXPECT_THAT(Load(plot), HasSubstr(">fast_row</text>"));
  EXPECT_EQ(RunProgram(absl::StrCat("python3 -c 'import sys, xml.dom.minidom as x; "
                                    "x.parse(sys.argv[1])' ",
                                    plot))
                .exit_status,
            0);
}

TEST_F(BenchCliTest, UsageErrorsAreStatusTwoBeforeAnythingIsMeasured) {
  const std::pair<std::string, std::string> kLines[] = {
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
  };
  for (const auto& [line, message] : kLines) {
    const auto run = Warpcall(line);
    EXPECT_EQ(run.exit_status, 2) << line;
    EXPECT_EQ(run.out, "") << line;
    EXPECT_THAT(run.err, HasSubstr(message)) << line;
  }
  EXPECT_THAT(seen(), IsEmpty());
}

TEST_F(BenchCliTest, AnUnknownKernelIsTheServersToRefuse) {
  Refuse("conv");
  const auto run = Warpcall("bench conv --shape 8");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("8      f32   refused: RESOURCE_EXHAUSTED"));
}

TEST_F(BenchCliTest, AServerThatIsNotThereIsStatusOne) {
  server_.Stop();
  const auto run = Warpcall("bench softmax --shape 8 --deadline 1");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.out, "");
}

TEST_F(BenchCliTest, HelpSaysWhatShapesAre) {
  const auto run = Warpcall("bench --help");
  EXPECT_EQ(run.exit_status, 0);
  for (const char* text : {"MxNxK", "{256..262144:x2}", "transpose_b", "%COPY"})
    EXPECT_THAT(run.out, HasSubstr(text));
}

}  // namespace
}  // namespace warpcall::cli
