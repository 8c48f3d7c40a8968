// A kernel of the user's as `--candidate` of bench, profile and describe.
#include <string>

#include "tests/client/cli/push/push_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWrong[] = "verdict { status: 'INCORRECT_NUMERICAL' reason: 'NaN for -inf' }";
constexpr char kCompiled[] = R"(compiled { compile_ns: 44000000 arch: "sm_90a" kernel: "k"
  registers_per_thread: 32 data_type: DATA_TYPE_FLOAT32
  files { name: "k.ptx" language: "ptx" text: ".version 9.0\n" }
  files { name: "k.sass" language: "sass" text: "EXIT ;\n" } })";

class CandidateTest : public PushCliTest {
 protected:
  ProgramResult Bench(const std::string& arguments = "") {
    return Warpcall(
        absl::StrCat("bench softmax --shape 4096x1024 --candidate ", cu_, " ", arguments));
  }
  ProgramResult Profile(const std::string& arguments = "") {
    return Warpcall(
        absl::StrCat("profile softmax --shape 4096x1024 --candidate ", cu_, " ", arguments));
  }
  ProgramResult Describe(const std::string& arguments = "") {
    return Warpcall(absl::StrCat("describe softmax --candidate ", cu_, " ", arguments));
  }
  v1::PushRequest TakeRequest() {
    v1::PushRequest request = TakeRequests().at(0);
    EXPECT_EQ(request.code(), kCode);
    request.clear_code();
    return request;
  }
};

TEST_F(CandidateTest, BenchHasItInItsTable) {
  const auto run = Bench("--implementation library --seed 9 --iterations 7 --attribute axis=-1");
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(Text(TakeRequest()),
            "problems { inputs { data_type: DATA_TYPE_FLOAT32 shape: 4096 shape: 1024 }"
            " attributes { key: \"axis\" value { int_value: -1 } } } seed: 9 iterations: 7"
            " compare_with: \"library\"");
  EXPECT_THAT(run.out, AllOf(HasSubstr("NVIDIA H200"), HasSubstr("pushed"), HasSubstr("10.0 us"),
                             HasSubstr("cudnn"), HasSubstr("12.0 us"), HasSubstr("80%"),
                             HasSubstr("takes rows only")));
}

TEST_F(CandidateTest, BenchPushesEachPoint) {
  const json value = WarpcallJson(
      absl::StrCat("bench softmax --shape '{8,16}x4' --device cuda:1 --candidate ", cu_));
  ASSERT_EQ(value["points"].size(), 2u);
  EXPECT_EQ(value["points"][1]["device"], "cuda:1");
  EXPECT_EQ(value["points"][1]["results"][0]["median_ns"], 10000);
  EXPECT_EQ(value["points"][1]["flops_ceiling"], 5e13);
  const auto requests = TakeRequests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].problems(0).inputs(0).shape(0), 16);
  EXPECT_EQ(requests[1].device(), "cuda:1");
}

// Times of a wrong kernel mean nothing.
TEST_F(CandidateTest, BenchShowsNoTimesOfAKernelThatIsWrong) {
  AnswerEvents({kGoodEvents[1], kGoodEvents[3], kWrong});
  const auto timed = Bench();
  EXPECT_EQ(timed.exit_status, 1);
  EXPECT_THAT(timed.out, AllOf(HasSubstr("INCORRECT_NUMERICAL: NaN for -inf"),
                               Not(HasSubstr("10.0 us")), HasSubstr("12.0 us")));
  AnswerEvents({kGoodEvents[1], kWrong});
  const auto untimed = Bench();
  EXPECT_EQ(untimed.exit_status, 1);
  EXPECT_THAT(untimed.out, HasSubstr(cu_ + ": INCORRECT_NUMERICAL: NaN for -inf"));
}

TEST_F(CandidateTest, RefusesWhatHasNoMeaning) {
  const std::string candidate = " --shape 4x8x2 --candidate " + cu_;
  ExpectUsageErrors(
      {{"bench matmul" + candidate, cu_ + " is a kernel for softmax, not for matmul"},
       {"profile matmul" + candidate, cu_ + " is a kernel for softmax, not for matmul"},
       {"describe matmul" + candidate, cu_ + " is a kernel for softmax, not for matmul"},
       {"bench softmax --max-noise 1" + candidate, "--max-noise"},
       {"bench softmax --shape 4 --candidate /no/such.cu", "/no/such.cu"},
       {"bench softmax --shape 4 --manifest m.json", "--candidate"},
       {"tune softmax" + candidate, "--candidate"},
       {"describe softmax --implementation cuda" + candidate, "--implementation"},
       {"describe softmax --type f16 --candidate " + cu_, "--type and --attribute are of --shape"},
       {"profile softmax --trace t.json" + candidate, "--trace"},
       {"profile softmax --request" + candidate, "--request"},
       {"profile softmax --implementation a --implementation b" + candidate,
        "2 times and --candidate once; 2 can be compared"}});
  EXPECT_EQ(requests(), 0u);
}

TEST_F(CandidateTest, ProfileSaysWhatBoundsIt) {
  const auto run = Profile();
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(Text(TakeRequest()),
            "problems { inputs { data_type: DATA_TYPE_FLOAT32 shape: 4096 shape: 1024 } }"
            " compare_with: \"none\"");
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("softmax on NVIDIA H200 by pushed"),
                    HasSubstr("Bound by memory: 3.36 TB/s are 83.9% of the 4.00 TB/s"),
                    HasSubstr("my_softmax"), HasSubstr("10.0 us"), HasSubstr("a pushed kernel")));
}

TEST_F(CandidateTest, ProfileRefusesAKernelThatIsWrong) {
  AnswerEvents({kGoodEvents[1], kGoodEvents[3], kWrong});
  const auto run = Profile();
  EXPECT_EQ(run.exit_status, 1);
  EXPECT_EQ(run.err, "FAILED_PRECONDITION: INCORRECT_NUMERICAL: NaN for -inf\n");
  AnswerEvents({kPassedVerdict});
  EXPECT_THAT(Profile().err, HasSubstr(cu_ + " is right and was not timed"));
}

TEST_F(CandidateTest, DescribeShowsWhatTheCompilerMade) {
  AnswerEvents({kCompiled, kPassedVerdict});
  const auto run = Describe();
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(Text(TakeRequest()), "check_only: true with_files: true");
  EXPECT_THAT(run.out, AllOf(HasSubstr("compiled float32 for sm_90a in 44.0 ms: 32 registers"),
                             HasSubstr("k.sass"), HasSubstr("PASSED")));
  EXPECT_EQ(Describe("--source sass --shape 4x8").out, "EXIT ;\n");
  EXPECT_EQ(TakeRequest().problems(0).inputs(0).shape(1), 8);
  EXPECT_THAT(Describe("--source cuda").err, HasSubstr("has no files in cuda; it has: ptx, sass"));
}

// A server without a GPU makes PTX, too, and judges nothing.
TEST_F(CandidateTest, DescribeNeedsNoVerdictButCodeThatCompiles) {
  AnswerEvents({kCompiled, "verdict { status: 'NOT_SUPPORTED' reason: 'no GPU' }"});
  EXPECT_EQ(Describe("--source ptx").out, ".version 9.0\n");
  AnswerEvents({R"(compiled { log: "my.cu(9): error: q" data_type: DATA_TYPE_FLOAT32 })",
                "verdict { status: 'COMPILE_ERROR' reason: 'my.cu(9): error: q' }"});
  const auto run = Describe("--source ptx");
  EXPECT_EQ(run.exit_status, 3);
  EXPECT_THAT(run.out, HasSubstr("COMPILE_ERROR: my.cu(9): error: q"));
}

}  // namespace
}  // namespace warpcall::cli
