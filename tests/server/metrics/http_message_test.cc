#include "server/metrics/http_message.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

HttpRequest Read(absl::string_view head) {
  HttpRequest request;
  EXPECT_EQ(ReadHttpHead(head, &request), 0) << head;
  return request;
}

TEST(ReadHttpHeadTest, TakesWhatPrometheusAndCurlSend) {
  const HttpRequest scrape = Read(
      "GET /metrics?name%5B%5D=a HTTP/1.1\r\nHost: h:9470\r\nUser-Agent: Prometheus/2.42.0\r\n"
      "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\nAccept-Encoding: gzip");
  EXPECT_EQ(scrape.method, "GET");
  EXPECT_EQ(scrape.path, "/metrics");
  EXPECT_FALSE(scrape.has_body);
  EXPECT_TRUE(scrape.keep_alive);
  const HttpRequest put = Read(
      "PUT /log_level HTTP/1.1\r\ncontent-length:5\r\nEXPECT: 100-Continue\r\nconnection: x, "
      "Close");
  EXPECT_TRUE(put.has_body);
  EXPECT_FALSE(put.chunked);
  EXPECT_EQ(put.body_bytes, 5u);
  EXPECT_TRUE(put.expects_continue);
  EXPECT_FALSE(put.keep_alive);
  EXPECT_TRUE(Read("PUT / HTTP/1.1\r\nTransfer-Encoding: Chunked").chunked);
  EXPECT_FALSE(Read("GET / HTTP/1.0").keep_alive);
  EXPECT_FALSE(Read("PUT / HTTP/1.1\r\nContent-Length: 0").has_body);
}

TEST(ReadHttpHeadTest, TakesOpenMetricsWhereItIsNoWorseThanText) {
  const std::pair<const char*, bool> kAccepts[] = {
      // Prometheus 2.42 and 3.4.
      {"application/openmetrics-text;version=1.0.0,application/"
       "openmetrics-text;version=0.0.1;q=0.75,"
       "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
       true},
      {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
       "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.2",
       true},
      {"Application/OpenMetrics-Text", true},
      {" text/plain ; q=0.5 , application/openmetrics-text ; version=\"1.0.0\" ; q=0.5 ", true},
      {"application/openmetrics-text;q=0.4,text/plain;q=0.5", false},
      {"application/openmetrics-text;version=2.0.0", false},
      {"application/openmetrics-text;q=0", false},
      {"application/openmetrics-text;q=x", false},
      {"application/openmetrics-textual", false},
      {"text/plain", false},
      {"*/*", false},
      {"", false},
  };
  for (const auto& [accept, takes] : kAccepts)
    EXPECT_EQ(Read(absl::StrCat("GET /metrics HTTP/1.1\r\nAccept: ", accept)).takes_open_metrics,
              takes)
        << accept;
  EXPECT_FALSE(Read("GET /metrics HTTP/1.1").takes_open_metrics);
}

TEST(ReadHttpHeadTest, RefusesWhatItCannotBeSureOf) {
  const std::pair<const char*, int> kHeads[] = {
      {"", 400},
      {"GET", 400},
      {"GET /", 400},
      {"GET / HTTP/1.1 x", 400},
      {" / HTTP/1.1", 400},
      {"GET / http/1.1", 400},
      {"PRI * HTTP/2.0", 505},
      {"GET / HTTP/1.1\r\nno colon", 400},
      {"GET / HTTP/1.1\r\n: no name", 400},
      {"GET / HTTP/1.1\r\nContent-Length: -1", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 1x", 400},
      {"GET / HTTP/1.1\r\nContent-Length:", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1", 400},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", 501},
  };
  for (const auto& [head, status] : kHeads) {
    HttpRequest request;
    EXPECT_EQ(ReadHttpHead(head, &request), status) << head;
  }
}

TEST(ReadHttpBodyTest, OfSoManyBytes) {
  const HttpRequest request = Read("PUT / HTTP/1.1\r\nContent-Length: 5");
  EXPECT_FALSE(ReadHttpBody(request, "debu").whole);
  const HttpBody body = ReadHttpBody(request, "debugGET /");
  EXPECT_TRUE(body.whole);
  EXPECT_EQ(body.data, "debug");
  EXPECT_EQ(body.bytes, 5u);
  EXPECT_FALSE(ReadHttpBody(Read("PUT / HTTP/1.1\r\nContent-Length: 4096"), "").refusal);
  for (const char* length : {"4097", "18446744073709551615", "99999999999999999999999"})
    EXPECT_EQ(
        ReadHttpBody(Read(absl::StrCat("PUT / HTTP/1.1\r\nContent-Length: ", length)), "").refusal,
        413)
        << length;
}

TEST(ReadHttpBodyTest, InChunks) {
  const HttpRequest request = Read("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked");
  const std::string bytes = "3\r\ndeb\r\n02;x=y\r\nug\r\n0\r\n\r\n";
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const HttpBody part = ReadHttpBody(request, bytes.substr(0, cut));
    EXPECT_FALSE(part.whole) << cut;
    EXPECT_EQ(part.refusal, 0) << cut;
  }
  const HttpBody body = ReadHttpBody(request, bytes + "GET /");
  EXPECT_TRUE(body.whole);
  EXPECT_EQ(body.data, "debug");
  EXPECT_EQ(body.bytes, bytes.size());

  const std::string most(4096, 'x');
  EXPECT_TRUE(ReadHttpBody(request, absl::StrCat("1000\r\n", most, "\r\n0\r\n\r\n")).whole);
  const std::pair<std::string, int> kBodies[] = {
      {"1001\r\n", 413},
      {absl::StrCat("1000\r\n", most, "\r\n1\r\n"), 413},
      {"ffffffffffffffff\r\n", 400},
      {"x\r\n", 400},
      {"\r\n", 400},
      {"-1\r\n", 400},
      {"1\r\nabc", 400},
      {std::string(256, '0'), 400},
  };
  for (const auto& [text, status] : kBodies)
    EXPECT_EQ(ReadHttpBody(request, text).refusal, status) << text.substr(0, 20);
  // Chunks of a byte whose lengths are spun out.
  std::string padded;
  while (padded.size() < (64 << 10)) padded += "1;" + std::string(200, 'p') + "\r\nx\r\n";
  EXPECT_EQ(ReadHttpBody(request, padded).refusal, 413);
}

TEST(WriteHttpReplyTest, TellsOfTheBodyThatAHeadLeavesOut) {
  const HttpReply reply = {.status = 405, .body = "no\n", .allow = "GET"};
  const std::string head =
      "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
      "Connection: close\r\nAllow: GET\r\n\r\n";
  EXPECT_EQ(WriteHttpReply(reply, true, false), head);
  EXPECT_EQ(WriteHttpReply(reply, false, false), head + "no\n");
}

}  // namespace
}  // namespace warpcall
