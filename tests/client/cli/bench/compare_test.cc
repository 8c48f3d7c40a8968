// `warpcall compare` as its users have it.
#include <fstream>
#include <string>

#include "tests/client/cli/bench/bench_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CompareCliTest : public BenchCliTest {
 protected:
  // Writes the output for a server whose fast_row takes `median_ns`; returns the file's path.
  std::string Measured(const std::string& name, double median_ns, const std::string& driver) {
    benchmark_.Set(
        [median_ns, driver](const v1::BenchmarkRequest& request, v1::BenchmarkResponse* response) {
          const FakeAnswer answer = FourRows(request, response);
          v1::BenchmarkResult* fast = response->mutable_results(1);
          fast->set_median_ns(median_ns);
          fast->set_median_low_ns(median_ns * 0.99);
          fast->set_median_high_ns(median_ns * 1.01);
          response->mutable_stamp()->set_driver(driver);
          return answer;
        });
    const std::string path = folder_.Path(name);
    std::ofstream(path) << Warpcall("bench softmax --shape '{8,16}x32' --json").out;
    return path;
  }
  std::string File(const std::string& name, const std::string& text) {
    std::ofstream(folder_.Path(name)) << text;
    return folder_.Path(name);
  }
};

TEST_F(CompareCliTest, SaysWhatChangedAndUnderWhichConditions) {
  const std::string before = Measured("before.json", 1000, "580");
  const std::string after = Measured("after.json", 1100, "590");
  server_.Stop();  // none is asked
  const auto run = Warpcall(absl::StrCat("compare ", before, " ", after));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  EXPECT_EQ(lines[0], absl::StrCat("softmax: ", before, ", then ", after));
  EXPECT_THAT(lines, Contains("device       cpu                      cpu"));
  EXPECT_THAT(lines, Contains("description  a processor              a processor"));
  EXPECT_THAT(lines, Contains("warning: driver differs: 580 and 590"));
  EXPECT_THAT(lines, Contains("8x32 float32 on cpu"));
  EXPECT_THAT(lines, Contains("16x32 float32 on cpu"));
  EXPECT_THAT(lines, Contains("fast_row        1.00 us  -1.0 +1.0  1.10 us  -1.0 +1.0  1.100"
                              "  slower"));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("slow_row "), EndsWith("  no difference seen"))));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("picky_row "), EndsWith("  did not run"))));
}

TEST_F(CompareCliTest, JsonHasEverything) {
  const std::string before = Measured("before.json", 1000, "580");
  const std::string after = Measured("after.json", 500, "580");
  const json value = WarpcallJson(absl::StrCat("compare ", before, " ", after));
  EXPECT_EQ(value["kernel"], "softmax");
  EXPECT_EQ(value["files"], json({{"before", before}, {"after", after}}));
  EXPECT_EQ(value["warnings"], json::array());
  EXPECT_EQ(value["conditions"][0]["device"], "cpu");
  EXPECT_THAT(value["conditions"][0]["lines"].dump(), HasSubstr("\"a processor\""));
  ASSERT_EQ(value["rows"].size(), 2u * 4);
  EXPECT_EQ(value["rows"][1], json::parse(R"({
    "shape": "8x32", "data_type": "float32", "device": "cpu", "implementation": "fast_row",
    "verdict": "faster", "ratio": 0.5, 
    "ratio_low": 0.49009900990099009, "ratio_high": 0.51010101010101,
    "before": {"median_ns": 1000, "median_low_ns": 990, "median_high_ns": 1010, "iterations": 100,
               "unstable": false, "error": ""},
    "after": {"median_ns": 500, "median_low_ns": 495, "median_high_ns": 505, "iterations": 100,
              "unstable": false, "error": ""}})"));
}

TEST_F(CompareCliTest, FailsOnRegressionsOnlyWhenAsked) {
  const std::string before = Measured("before.json", 1000, "580");
  const std::string after = Measured("after.json", 1100, "580");
  const std::string both = absl::StrCat("compare ", before, " ", after);
  EXPECT_EQ(Warpcall(both).exit_status, 0);
  EXPECT_EQ(Warpcall(both + " --fail-above 15").exit_status, 0);
  const auto run = Warpcall(both + " --fail-above 5");
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_THAT(run.out, HasSubstr("  slower\n"));
  EXPECT_EQ(run.err, "warpcall: compare: 2 rows are slower by more than 5%, or no longer run\n");
  EXPECT_EQ(Warpcall(absl::StrCat("compare ", after, " ", before, " --fail-above 0")).exit_status,
            0);
}

// A run whose second point got only its end, before the server named the device.
TEST_F(CompareCliTest, AnIncompleteFileIsComparedAsFarAsItGoesAndIsNoSuccess) {
  const std::string before = Measured("before.json", 1000, "580");
  json cut = json::parse(ReadFile(Measured("whole.json", 1000, "580")));
  json& point = cut["points"][1];
  point["device"] = "";
  point["stamp"] = nullptr;
  point["error"] = {{"code", "CANCELLED"}, {"message", "interrupted"}};
  point["results"].erase(1);  // fast_row
  const std::string after = File("after.json", cut.dump());
  const std::string both = absl::StrCat("compare ", before, " ", after);
  const auto run = Warpcall(both);
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::vector<std::string> lines = Lines(run.out);
  EXPECT_THAT(lines, Contains(absl::StrCat("warning: ", after,
                                           " is incomplete: 1 point was not "
                                           "measured to the end; the first is 16x32 float32: "
                                           "CANCELLED: interrupted")));
  EXPECT_THAT(lines,
              Contains(AllOf(StartsWith("slow_row "), EndsWith("  no difference seen"))).Times(2));
  EXPECT_THAT(lines, Contains(AllOf(StartsWith("fast_row "), EndsWith("  only before"))).Times(1));
  const auto judged = Warpcall(both + " --fail-above 5");
  EXPECT_EQ(judged.exit_status, 3);
  EXPECT_EQ(judged.err, absl::StrCat("warpcall: compare: 1 row is missing in ", after,
                                     " and could not be judged\n"));
  // A row that is surely slower is told from those that are to be measured again.
  cut = json::parse(ReadFile(Measured("slower.json", 1100, "580")));
  cut["points"][1]["results"].erase(1);
  const std::string slower = File("after.json", cut.dump());
  EXPECT_EQ(Warpcall(absl::StrCat("compare ", before, " ", slower, " --fail-above 5")).exit_status,
            1);
}

TEST_F(CompareCliTest, JsonOfRegressionsEndsWithAnErrorOnStderr) {
  const std::string before = Measured("before.json", 1000, "580");
  const std::string after = Measured("after.json", 1100, "580");
  const auto run = Warpcall(absl::StrCat("compare --json ", before, " ", after, " --fail-above 5"));
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_TRUE(json::accept(run.out));
  EXPECT_EQ(json::parse(run.err, nullptr, false),
            json({{"error",
                   {{"code", "FAILED_PRECONDITION"},
                    {"message", "2 rows are slower by more than 5%, or no longer run"},
                    {"retryable", false},
                    {"retry_after_ms", nullptr},
                    {"request_id", nullptr},
                    {"exit_status", 1}}}}));
}

TEST_F(CompareCliTest, ATimeThatIsNoNumberIsNone) {
  const std::string before = Measured("before.json", 1000, "580");
  json value = json::parse(ReadFile(before));
  value["points"][0]["results"][1]["median_ns"] = nullptr;
  const auto run =
      Warpcall(absl::StrCat("compare ", before, " ", File("after.json", value.dump())));
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(Lines(run.out),
              Contains(AllOf(StartsWith("fast_row "), EndsWith("  no longer runs"))));
}

TEST_F(CompareCliTest, FilesThatAreNoBenchmarksAreToldInALine) {
  const std::string good = Measured("good.json", 1000, "580");
  const std::string cut = File("cut.json", ReadFile(good).substr(0, 500));
  const std::string other = File("other.json", R"({"kernel": "gelu", "points": []})");
  const std::string strange = File("strange.json", R"({"kernel": "softmax", "points": [
      {"shape": "8", "data_type": "float32",
       "results": [{"implementation": "copy", "median_ns": "fast"}]}]})");
  const std::string list = File("list.json", "[1, 2]");
  for (const auto& [file, message] : std::vector<std::pair<std::string, std::string>>{
           {folder_.Path("no.json"), "can't read " + folder_.Path("no.json") + ": No such file"},
           {"/", "can't read /: "},
           {cut, "cut.json: invalid JSON at byte 5"},
           {x_, "x.npy: invalid JSON at byte 1 of "},
           {list, "list.json: not what `warpcall bench --json` prints: it has no \"kernel\""},
           {strange,
            "strange.json: not what `warpcall bench --json` prints: (results[0].median_ns): "
            "invalid "
            "value \"fast\""},
           {other, "is of softmax, " + other + " of gelu: only one kernel's can be compared"},
           {File("shapeless.json",
                 R"({"kernel": "softmax", "points": [{"shape": 8, "results": []}]})"),
            "\"shape\" is of type number; it must be a text"},
           {File("none.json", R"({"kernel": "softmax", "points": []})"), "no row in common"}}) {
    const auto run = Warpcall(absl::StrCat("compare ", good, " ", file));
    EXPECT_EQ(run.exit_status, 2) << file;
    EXPECT_EQ(run.out, "") << file;
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(Lines(run.err).size(), 1u) << run.err;
  }
}

}  // namespace
}  // namespace warpcall::cli
