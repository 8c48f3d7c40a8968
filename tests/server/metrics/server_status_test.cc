// The page of the operators' port, and the same facts as JSON.
#include "server/metrics/server_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiled/sha256.h"
#include "kernels/multiply_adds.h"

namespace warpcall {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

KernelStatus SomeKernel(const std::string& name) {
  KernelStatus kernel{.name = name, .auto_choice = {"cuda", 7, 8}, .requests = 90};
  kernel.last_minute.answered[1] = 30;  // 1 to 2 us
  kernel.last_minute.waited[0] = 20;    // up to 1 us
  kernel.last_minute.failed = 6;
  return kernel;
}

ServerStatus SomeStatus() {
  ServerStatus status;
  status.build = {"1.2.3", "gcc 12", "none"};
  status.hostname = "node7";
  status.phase = ServerPhase::kServing;
  status.is_ready = true;
  status.readiness = "ok";
  status.uptime_seconds = 90061;
  status.unix_ns = int64_t{1'800'000'000} * 1'000'000'000;
  status.window_seconds = 60;
  DeviceStatus device{.name = "cuda:0"};
  device.snapshot.memory_used_bytes = int64_t{3} << 30;
  device.snapshot.memory_total_bytes = int64_t{80} << 30;
  device.snapshot.bandwidth_ceiling.bytes_per_second = 4.25e12;
  device.snapshot.multiply_add_ceilings[static_cast<size_t>(Arithmetic::kBFloat16)] = 8e14;
  device.snapshot.queue_depth = 5;
  device.snapshot.queue_oldest_age_seconds = 0.25;
  device.snapshot.resident_tensors = 3;
  device.snapshot.resident_used_bytes = 2048;
  device.snapshot.resident_total_bytes = 4096;
  status.devices = {device, {.name = "cuda:1", .is_open = false}};
  status.kernels = {SomeKernel("gelu"), {.name = "softmax", .auto_choice = {"cpu", 0, 0}}};
  status.inspections = {{.unix_ns = status.unix_ns - int64_t{65} * 1'000'000'000,
                         .method = "push",
                         .kernel = "softmax",
                         .device = "cuda:0",
                         .push = "my_softmax",
                         .principal = "alice",
                         .outcome = "PASSED",
                         .seconds = 2.5}};
  return status;
}

TEST(StatusPageTest, ShowsEachFactInWordsForPeople) {
  const std::string page = StatusPage(SomeStatus());
  EXPECT_THAT(
      page, AllOf(HasSubstr("<h1>warpcalld 1.2.3 on node7</h1>"), HasSubstr("up 1 d 1 h, at 2027-"),
                  HasSubstr("<span class=\"good\">ready</span> (ok), phase serving")));
  EXPECT_THAT(page, HasSubstr("<td>cuda:0</td><td class=\"good\">healthy</td>"
                              "<td class=\"right\">3.00 GiB of 80.0 GiB</td>"
                              "<td class=\"right\">3: 2.00 KiB of 4.00 KiB</td>"
                              "<td class=\"right\">4.25 TB/s</td><td>bfloat16 800 TFLOP/s</td>"
                              "<td class=\"right\">5</td><td class=\"right\">250 ms</td>"));
  EXPECT_THAT(page, HasSubstr("<td>cuda:1</td><td class=\"bad\">could not be opened</td>"));
  EXPECT_THAT(page, HasSubstr("<td>gelu</td><td>cuda, 7 of 8</td><td class=\"right\">0.5</td>"
                              "<td class=\"right\">0.1</td><td class=\"right\">1.50 us</td>"
                              "<td class=\"right\">1.99 us</td><td class=\"right\">500 ns</td>"
                              "<td class=\"right\">990 ns</td><td class=\"right\">90</td>"));
  EXPECT_THAT(page, HasSubstr("<td>softmax</td><td>cpu, first in order</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"right\">1 min 5 s</td>"));
  EXPECT_THAT(page, AllOf(HasSubstr("<td>softmax: my_softmax</td>"),
                          HasSubstr("<td class=\"good\">PASSED</td><td>alice</td>")));
  for (const char* const link : {"metrics", "healthz", "readyz", "status.json"})
    EXPECT_THAT(page, HasSubstr(absl::StrCat("<a href=\"", link, "\">")));
}

TEST(StatusPageTest, AServerThatIsNotReadySaysWhyInItsTitleToo) {
  ServerStatus status = SomeStatus();
  status.is_ready = false;
  status.readiness = "starting: opening <devices>";
  const std::string page = StatusPage(status);
  EXPECT_THAT(page, HasSubstr("<title>NOT READY: warpcalld 1.2.3 on node7</title>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"bad\">not ready</span> (starting: opening "
                              "&lt;devices&gt;)"));
}

TEST(StatusPageTest, AQuantileBeyondTheLastBucketIsALowerBound) {
  ServerStatus status = SomeStatus();
  status.kernels[0].last_minute.answered[kBoundedBucketCount] = 1000;
  EXPECT_THAT(StatusPage(status), HasSubstr("<td class=\"right\">over 16.8 s</td>"));
  const Json kernel = Json::parse(StatusJson(status))["kernels"][0]["last_minute"];
  EXPECT_EQ(kernel["p99_seconds"], 16.777216);
  EXPECT_EQ(kernel["p99_is_lower_bound"], true);
  EXPECT_EQ(kernel["queue_p99_is_lower_bound"], false);
}

// The text between <tag> and </tag>, which must stand once.
std::string Between(const std::string& page, const std::string& tag) {
  const size_t begin = page.find(absl::StrCat("<", tag, ">")) + tag.size() + 2;
  EXPECT_EQ(page.find(absl::StrCat("<", tag, ">"), begin), std::string::npos);
  return page.substr(begin, page.find(absl::StrCat("</", tag, ">")) - begin);
}

TEST(StatusPageTest, ThePolicyAllowsItsOwnScriptAndStyleByTheirHashesAndNothingElse) {
  const std::string page = StatusPage(SomeStatus());
  const auto source = [&](const char* tag) {
    const compiled::Sha256 hash = compiled::Sha256Of(Between(page, tag));
    return absl::StrCat("'sha256-",
                        absl::Base64Escape({reinterpret_cast<const char*>(hash.data()), 32}), "'");
  };
  EXPECT_THAT(StatusPageHeaders(),
              HasSubstr(absl::StrCat("Content-Security-Policy: default-src 'none'; style-src ",
                                     source("style"), "; script-src ", source("script"),
                                     "; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                                     "frame-ancestors 'none'\r\n")));
  for (const char* const loaded : {"//", "url(", "@import", " src=", " style=", " onload"})
    EXPECT_THAT(page, Not(HasSubstr(loaded)));
}

// Each text that a caller may choose, or that may hold what one chose.
ServerStatus StatusOf(const std::string& text) {
  ServerStatus status = SomeStatus();
  status.build.version = status.hostname = status.readiness = status.devices[0].name = text;
  status.kernels[0].name = status.kernels[0].auto_choice.implementation = text;
  RecentInspection& inspection = status.inspections[0];
  inspection.method = inspection.kernel = inspection.device = inspection.push = text;
  inspection.principal = inspection.outcome = text;
  return status;
}

TEST(StatusPageTest, TextOfOthersStaysText) {
  const std::string page =
      StatusPage(StatusOf("</td><script>alert(1)</script>\"'&\x1b[2J\xff\u202e"));
  EXPECT_EQ(Between(page, "script").find("alert"), std::string::npos);
  EXPECT_THAT(page, Not(HasSubstr("</td><script>")));
  EXPECT_THAT(page, HasSubstr("&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\\x1b"));
  for (const char c : page) EXPECT_TRUE(c == '\n' || (c >= 32 && c < 127)) << int{c};
}

TEST(StatusJsonTest, TextOfOthersStaysText) {
  const std::string text = "\"},</script>\n\x1b[2J\xff";
  const std::string line = StatusJson(StatusOf(text));
  for (const char c : line.substr(0, line.size() - 1)) EXPECT_TRUE(c >= 32 && c < 127) << int{c};
  EXPECT_EQ(Json::parse(line)["inspections"][0]["principal"], "\"},</script>\n\x1b[2J\ufffd");
}

TEST(StatusJsonTest, HasTheFactsOfThePage) {
  const Json json = Json::parse(StatusJson(SomeStatus()));
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["hostname"], "node7");
  EXPECT_EQ(json["phase"], "serving");
  EXPECT_EQ(json["ready"], true);
  EXPECT_EQ(json["uptime_seconds"], 90061);
  EXPECT_EQ(json["window_seconds"], 60);
  EXPECT_EQ(json["last_minute"]["requests"], 30);
  const Json& device = json["devices"][0];
  EXPECT_EQ(device["copy_bytes_per_second"], 4.25e12);
  EXPECT_EQ(
      device["multiply_adds_flops_per_second"],
      Json({{"float32", nullptr}, {"tf32", nullptr}, {"float16", nullptr}, {"bfloat16", 8e14}}));
  EXPECT_EQ(device["healthy"], true);
  EXPECT_EQ(json["devices"][1]["open"], false);
  EXPECT_EQ(json["devices"][1]["healthy"], false);
  const Json& kernel = json["kernels"][0];
  EXPECT_EQ(kernel["auto_implementation"], "cuda");
  EXPECT_EQ(kernel["auto_requests"], 8);
  EXPECT_EQ(kernel["last_minute"]["requests_per_second"], 0.5);
  EXPECT_EQ(kernel["last_minute"]["failed_per_second"], 0.1);
  EXPECT_EQ(kernel["last_minute"]["p50_seconds"], 1.5e-6);
  EXPECT_EQ(json["kernels"][1]["last_minute"]["p50_seconds"], nullptr);
  EXPECT_EQ(json["inspections"][0]["unix_seconds"], 1'800'000'000 - 65);
  EXPECT_EQ(json["inspections"][0]["push"], "my_softmax");
}

TEST(StatusTest, AServerThatHasJustStartedHasNoRates) {
  const ServerStatus status;
  EXPECT_EQ(Json::parse(StatusJson(status))["last_minute"]["requests_per_second"], 0);
  EXPECT_THAT(StatusPage(status), HasSubstr("phase starting, up 0 s"));
}

// As many entries as anybody likes, with names as long and as hard to write as they like.
TEST(StatusTest, PageAndJsonAreBounded) {
  ServerStatus status = StatusOf(std::string(10'000, '"'));
  status.readiness = std::string(10'000, '\x01');
  status.devices.resize(1000, status.devices[0]);
  status.kernels.resize(5000, status.kernels[0]);
  status.inspections.resize(100, status.inspections[0]);
  const std::string page = StatusPage(status);
  EXPECT_LT(page.size(), kStatusBytesMax);
  EXPECT_THAT(page, AllOf(HasSubstr("<p>and 4744 more kernels</p>"),
                          HasSubstr("<p>and 936 more devices</p>")));
  const std::string line = StatusJson(status);
  EXPECT_LT(line.size(), kStatusBytesMax);
  const Json json = Json::parse(line);
  EXPECT_EQ(json["kernels"].size(), 256u);
  EXPECT_EQ(json["kernels_left_out"], 4744);
  EXPECT_EQ(json["devices_left_out"], 936);
  EXPECT_EQ(json["inspections"].size(), 10u);
}

TEST(CutTextTest, CutsWholeCharacters) {
  EXPECT_EQ(CutText("1234567890", 10), "1234567890");
  EXPECT_EQ(CutText("12345678901", 10), "1234567...");
  EXPECT_EQ(CutText("123456\u00e4\u00e4\u00e4", 10), "123456...");
}

}  // namespace
}  // namespace warpcall
