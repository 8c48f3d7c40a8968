// `warpcall push --html`.
#include <string>
#include <vector>

#include "tests/client/cli/push/push_fixture.h"

namespace warpcall::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PushPageTest : public PushCliTest {
 protected:
  // The text of the page, after checks of its elements.
  std::string PageText() {
    const ProgramResult checked =
        RunProgram(absl::StrCat("python3 " PUSH_TESTS "/check_page.py ", html_));
    EXPECT_EQ(checked.exit_status, 0) << checked.out << checked.err;
    return checked.out;
  }

  const std::string html_ = folder_.Path("push.html");
};

TEST_F(PushPageTest, HasVerdictTimesErrorsAndRoofline) {
  ASSERT_EQ(Push("--html " + html_).exit_status, 0);
  const std::string text = PageText();
  EXPECT_THAT(text,
              AllOf(HasSubstr(": my_softmax, op softmax"),
                    HasSubstr("PASSED: 1.20x the speed of the best other"),
                    HasSubstr("NVIDIA H200, driver 580.1"),
                    HasSubstr("my.cu(9): warning #177-D: unused \"n\""),
                    HasSubstr("32 registers, no spills"), HasSubstr("4096x1024 float32 axis=-1")));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("did not run: takes rows only"), HasSubstr("80%"),
            HasSubstr("copy ceiling 4.00 TB/s"), HasSubstr("multiply-adds 50.0 TFLOP/s"),
            HasSubstr("pushed 4096x1024 float32: 10.0 us"), HasSubstr("over 1"), HasSubstr("1/2")));
  const std::string page = ReadFile(html_);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  // A bar for each of the two bins that have elements.
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(page, "<polygon ")).size(), 3u);
}

TEST_F(PushPageTest, WhatDidNotRunHasNoFigures) {
  AnswerEvents({"compiled { kernel: 'k' arch: 'sm_90a' }", "verdict { status: 'NOT_SUPPORTED' }"});
  EXPECT_EQ(Push("--html " + html_).exit_status, 4);
  EXPECT_THAT(ReadFile(html_), HasSubstr("<p>k, sm_90a</p>"));
}

TEST_F(PushPageTest, TextOfOthersStaysText) {
  const std::string evil =
      "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\\"'&amp;";
  const std::string file = folder_.Path("<b>&.cu");
  WriteText(file, ReadFile(cu_));
  AnswerEvents(
      {absl::StrCat("compiled { log: \"", evil, "\\n--></pre>\" kernel: \"", evil, "\" arch: \"",
                    evil, "\" }"),
       absl::StrCat("checked { detail: \"", evil, "\" fill: \"", evil,
                    "\" problem { attributes { "
                    "key: \"",
                    evil, "\" value { string_value: \"", evil, "\" } } } }"),
       absl::StrCat("timed { results { implementation: \"", evil,
                    "\" median_ns: 5 flops_per_second: "
                    "1e9 launch { bytes_moved: 8 flops: 8 } } results { implementation: \"",
                    evil, "\" error: \"", evil, "\" } }"),
       absl::StrCat("verdict { status: \"", evil, "\" reason: \"", evil, "\" name: \"", evil,
                    "\" stamp { device_description: \"", evil, "\" driver: \"", evil, "\" } }")});
  const auto run = Warpcall(absl::StrCat("push '", file, "' --html ", html_));
  EXPECT_EQ(run.exit_status, 3) << run.err;
  const std::string said = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;";
  std::vector<std::string> pieces = absl::StrSplit(PageText(), said);
  EXPECT_GE(pieces.size(), 14u);
}

// Figures that no axis can hold.
TEST_F(PushPageTest, StrangeFiguresDrawNothing) {
  AnswerEvents({"checked { max_error: inf histogram: -5 histogram: 0 }",
                "timed { ceiling_bytes_per_second: inf flops_ceiling: nan results { median_ns: nan "
                "flops_per_second: inf launch { flops: 1 bytes_moved: 0 } } }",
                "timed {}", "verdict { status: 'PASSED' speedup: nan }"});
  EXPECT_EQ(Push("--html " + html_).exit_status, 0);
  const std::string page = ReadFile(html_);
  PageText();
  EXPECT_THAT(page, Not(HasSubstr("<svg")));
}

TEST_F(PushPageTest, APushThatWasCutHasAPageAndARefusedOneHasNone) {
  Answer([](const PushStreamCall& call) {
    if (!call.request.fresh()) WriteEvent(kGoodEvents[1], call);
    return FakeAnswer{absl::UnavailableError("draining <now>"), "-1"};
  });
  EXPECT_EQ(Push("--html " + html_).exit_status, 1);
  EXPECT_THAT(PageText(), HasSubstr("no verdict: UNAVAILABLE: draining <now>"));
  const std::string other = folder_.Path("other.html");
  EXPECT_EQ(Push("--fresh --html " + other).exit_status, 1);
  EXPECT_EQ(ReadFile(other), "");
}

TEST_F(PushPageTest, ABrowserShowsItAndRunsNothing) {
  std::string browser;
  for (const char* const name : {"chromium", "chromium-browser", "google-chrome"})
    if (browser.empty() && Shell(absl::StrCat("command -v ", name)).exit_status == 0)
      browser = name;
  if (browser.empty()) GTEST_SKIP() << "no chromium here";
  AnswerEvents({"compiled { log: \"</pre><script>document.title='ran'</script>\" }",
                "verdict { status: 'PASSED' }"});
  ASSERT_EQ(Push("--html " + html_).exit_status, 0);
  const auto run =
      Shell(absl::StrCat(browser, " --headless --no-sandbox --disable-gpu --dump-dom ",
                         "--user-data-dir=", folder_.Path("profile"), " file://", html_));
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("my_softmax, op softmax</title>"),
                             HasSubstr("&lt;script&gt;document.title"), Not(HasSubstr("<script"))));
}

}  // namespace
}  // namespace warpcall::cli
