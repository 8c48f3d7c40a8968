// Outputs of `warpcall bench`: pictures, stdout, comparisons.
#include <fstream>
#include <string>

#include "tests/client/cli/bench/bench_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using BenchOutputsTest = BenchCliTest;

TEST_F(BenchOutputsTest, APictureOnStdoutIsAlone) {
  const auto run = Warpcall("bench softmax --shape '8x{32..128:x2}' --plot -");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("<svg "));
  EXPECT_THAT(run.out, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(run.out, HasSubstr(">N of 8xN<"));
  EXPECT_THAT(folder_.Names(), ElementsAre("x.npy"));
}

TEST_F(BenchOutputsTest, CsvAndPicturesOnStdoutHaveNoControlCharactersOfAServer) {
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    response->mutable_results(0)->set_implementation("slow\x1b[2J\u009B\u202E, row");
    response->mutable_results(2)->set_error("a\r\nb\x07");
    return answer;
  });
  const std::string csv = Warpcall("bench softmax --shape 8x32 --csv -").out;
  EXPECT_THAT(csv, HasSubstr(",\"slow\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae, row\","));
  EXPECT_THAT(csv, HasSubstr(",a\\x0d\\x0ab\\x07,"));
  EXPECT_THAT(Lines(csv), SizeIs(1 + 4));
  EXPECT_THAT(Warpcall("bench softmax --shape '8x{32,64}' --plot -").out,
              HasSubstr("slow\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae, row"));
}

TEST_F(BenchOutputsTest, PngIsRefusedBeforeAnythingIsMeasuredWithTheWayToMakeOne) {
  const std::string png = folder_.Path("bench.PNG");  // upper or lower case
  const std::string svg = folder_.Path("bench.svg");
  std::ofstream(png) << "old";
  const auto run = Warpcall(absl::StrCat("bench softmax --shape 8x32 --plot ", png));
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("rsvg-convert -o ", png, " ", svg)));
  EXPECT_THAT(run.err, HasSubstr("librsvg2-bin"));
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(benchmark_.Take(), IsEmpty());
  EXPECT_EQ(ReadFile(png), "old");
}

TEST_F(BenchOutputsTest, ABaselineIsComparedWith) {
  const std::string before = folder_.Path("before.json");
  std::ofstream(before) << Warpcall("bench softmax --shape 8x32 --json").out;
  benchmark_.Set([](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
    const FakeAnswer answer = FourRows(request, response);
    v1::BenchmarkResult* fast = response->mutable_results(1);
    fast->set_median_ns(500);
    fast->set_median_low_ns(490);
    fast->set_median_high_ns(510);
    response->mutable_stamp()->set_driver("590");
    return answer;
  });
  const std::string command = absl::StrCat("bench softmax --shape 8x32 --baseline ", before);
  const auto run = Warpcall(command);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("VS BEST"));
  EXPECT_THAT(run.out, HasSubstr(absl::StrCat("\nsoftmax: ", before, ", then this run\n")));
  const std::vector<std::string> lines = Lines(run.out);
  EXPECT_THAT(lines, ::testing::Contains(AllOf(StartsWith("fast_row "), HasSubstr(" 0.500 "),
                                               ::testing::EndsWith("  faster"))));
  EXPECT_THAT(lines, ::testing::Contains(AllOf(StartsWith("slow_row "),
                                               ::testing::EndsWith("  no difference seen"))));
  EXPECT_THAT(run.out, Not(HasSubstr("warning:")));  // one run's driver is unknown
  const json comparison = WarpcallJson(command)["comparison"];
  EXPECT_EQ(comparison["rows"][1]["verdict"], "faster");
  EXPECT_EQ(comparison["rows"][1]["ratio"], 0.5);
  const auto mixed = Warpcall(absl::StrCat(command, " --csv -"));
  EXPECT_EQ(mixed.exit_status, 2);
  EXPECT_THAT(mixed.err, HasSubstr("--baseline shows its comparison on stdout"));
}

TEST_F(BenchOutputsTest, ABaselineIsReadBeforeAnythingIsMeasured) {
  const std::string before = folder_.Path("before.json");
  std::ofstream(before) << Warpcall("bench softmax --shape 8x32 --json").out;
  benchmark_.Take();
  ExpectUsageErrors({
      {absl::StrCat("bench matmul --shape 8x8x8 --baseline ", before),
       "before.json is of softmax, not matmul"},
      {absl::StrCat("bench softmax --shape 8 --baseline ", folder_.Path("no.json")),
       "no.json: No such file"},
      {absl::StrCat("bench softmax --shape 8 --baseline ", x_),
       "x.npy: invalid JSON at byte 1 of "},
  });
  EXPECT_THAT(benchmark_.Take(), IsEmpty());
}

}  // namespace
}  // namespace warpcall::cli
