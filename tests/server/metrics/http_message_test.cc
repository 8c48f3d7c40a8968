#include "server/metrics/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

HttpRequest ReadHead(absl::string_view head) {
  HttpReader reader;
  std::string bytes = absl::StrCat(head, "\r\n\r\n");
  EXPECT_EQ(reader.ReadHead(&bytes), 0) << head;
  EXPECT_TRUE(reader.has_head()) << head;
  EXPECT_EQ(bytes, "");
  return reader.request();
}

int RefusalOf(absl::string_view head) {
  HttpReader reader;
  std::string bytes = absl::StrCat(head, "\r\n\r\n");
  return reader.ReadHead(&bytes);
}

TEST(HttpReaderTest, TakesWhatPrometheusAndCurlSend) {
  const HttpRequest scrape = ReadHead(
      "\r\nGET /metrics?name%5B%5D=a HTTP/1.1\r\nHost: h:9470\r\nUser-Agent: Prometheus/2.42.0\r\n"
      "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\nAccept-Encoding: gzip");
  EXPECT_EQ(scrape.method, "GET");
  EXPECT_EQ(scrape.path, "/metrics");
  EXPECT_THAT(scrape.hosts, ElementsAre("h:9470"));
  EXPECT_FALSE(scrape.has_body);
  EXPECT_TRUE(scrape.keep_alive);
  const HttpRequest put = ReadHead(
      "PUT /log_level HTTP/1.1\r\nhost:h\r\ncontent-length:5\r\nEXPECT: 100-Continue\r\n"
      "connection: x, Close");
  EXPECT_TRUE(put.has_body);
  EXPECT_TRUE(put.expects_continue);
  EXPECT_FALSE(put.keep_alive);
  EXPECT_TRUE(ReadHead("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked").has_body);
  EXPECT_FALSE(ReadHead("GET / HTTP/1.0").keep_alive);
  EXPECT_TRUE(ReadHead("GET / HTTP/1.0\r\nConnection: keep-alive").keep_alive);
  EXPECT_THAT(ReadHead("GET / HTTP/1.0").hosts, IsEmpty());
  EXPECT_FALSE(ReadHead("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0").has_body);
}

TEST(HttpReaderTest, AnAbsoluteTargetHasAPathAndAName) {
  const HttpRequest request = ReadHead("GET http://a:80/readyz?x HTTP/1.1\r\nHost: b");
  EXPECT_EQ(request.path, "/readyz");
  EXPECT_THAT(request.hosts, ElementsAre("a:80", "b"));
}

TEST(HttpReaderTest, TakesGzipWhereItIsNoWorseThanNoEncoding) {
  const std::pair<const char*, bool> kAccepts[] = {
      {"gzip", true},
      {"GZip , deflate", true},
      {"x-gzip", true},
      {"*", true},
      {"br;q=1, *;q=0.1", true},
      {"gzip;q=0.5, identity;q=0.5", true},
      {"gzip;q=0.4, identity;q=0.5", false},
      {"gzip;q=0", false},
      {"gzip; q=0, *", false},
      {"gzip;q=x", false},
      {"identity", false},
      {"deflate, br", false},
      {"gzipped", false},
      {"", false},
  };
  for (const auto& [accept, takes] : kAccepts)
    EXPECT_EQ(ReadHead(absl::StrCat("GET / HTTP/1.0\r\nAccept-Encoding: ", accept)).takes_gzip,
              takes)
        << accept;
  EXPECT_FALSE(ReadHead("GET / HTTP/1.0").takes_gzip);
}

TEST(HttpReaderTest, TakesOpenMetricsWhereItIsNoWorseThanText) {
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
    EXPECT_EQ(ReadHead(absl::StrCat("GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: ", accept))
                  .takes_open_metrics,
              takes)
        << accept;
  EXPECT_FALSE(ReadHead("GET /metrics HTTP/1.1\r\nHost: h").takes_open_metrics);
}

// Floods' test shows that their bodies run as no request.
TEST(HttpReaderTest, RefusesWhatItCannotBeSureOf) {
  const std::pair<const char*, int> kHeads[] = {
      {"GET", 400},
      {"GET /", 400},
      {"GET / HTTP/1.1\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400},
      {"GET / HTTP/1.0\r\nHost: a\r\nHost: b", 400},
      {"GET / HTTP/1.1 x\r\nHost: h", 505},
      {"GET / http/1.1\r\nHost: h", 505},
      {"GET / HTTP/1.2\r\nHost: h", 505},
      {"PRI * HTTP/2.0", 505},
      {" / HTTP/1.1\r\nHost: h", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nno colon", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\n: no name", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length : 1", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0,0", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked", 501},
      {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
       400},
      {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b", 400},
      {"GET / HTTP/1.1\r\nHost: h\r\nX:\r\n\tb", 400},
  };
  for (const auto& [head, status] : kHeads) EXPECT_EQ(RefusalOf(head), status) << head;
}

// Cuts the request in two at every byte.
TEST(HttpReaderTest, RequestsComeInPieces) {
  const std::pair<std::string, std::string> kBodies[] = {
      {"Content-Length: 5\r\n\r\n", "debug"},
      {"Transfer-Encoding: chunked\r\n\r\n", "3\r\ndeb\r\n02;x=y\r\nug\r\n0\r\nA: b\r\n\r\n"}};
  for (const auto& [fields, body] : kBodies) {
    const std::string text = absl::StrCat("\r\nPUT / HTTP/1.1\r\nHost: h\r\n", fields, body);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      HttpReader reader;
      std::string bytes = text.substr(0, cut);
      EXPECT_EQ(reader.ReadHead(&bytes), 0);
      if (reader.has_head()) EXPECT_EQ(reader.ReadBody(&bytes), 0);
      EXPECT_FALSE(reader.is_whole()) << cut;
      bytes += text.substr(cut) + "GET /";
      if (!reader.has_head()) EXPECT_EQ(reader.ReadHead(&bytes), 0);
      ASSERT_TRUE(reader.has_head()) << cut;
      EXPECT_EQ(reader.ReadBody(&bytes), 0);
      ASSERT_TRUE(reader.is_whole()) << cut;
      EXPECT_EQ(reader.request().body, "debug");
      EXPECT_EQ(bytes, "GET /");
    }
  }
}

int BodyRefusalOf(absl::string_view field, std::string bytes) {
  HttpReader reader;
  std::string head = absl::StrCat("PUT / HTTP/1.1\r\nHost: h\r\n", field, "\r\n\r\n");
  EXPECT_EQ(reader.ReadHead(&head), 0);
  return reader.ReadBody(&bytes);
}

TEST(HttpReaderTest, BodiesHaveALimit) {
  const std::string most(kHttpBodyBytesMax, 'x');
  EXPECT_EQ(BodyRefusalOf("Content-Length: 4096", most), 0);
  EXPECT_EQ(BodyRefusalOf("Content-Length: 4097", ""), 413);
  EXPECT_EQ(BodyRefusalOf("Content-Length: 18446744073709551615", ""), 413);
  const std::string chunked = "Transfer-Encoding: chunked";
  EXPECT_EQ(BodyRefusalOf(chunked, absl::StrCat("1000\r\n", most, "\r\n0\r\n\r\n")), 0);
  EXPECT_EQ(BodyRefusalOf(chunked, "1001\r\n"), 413);
  EXPECT_EQ(BodyRefusalOf(chunked, absl::StrCat("1000\r\n", most, "\r\n1\r\n")), 413);
  // Extensions and trailers as long as they like.
  EXPECT_EQ(BodyRefusalOf(chunked, absl::StrCat("1;", std::string(9000, 'p'))), 413);
  EXPECT_EQ(BodyRefusalOf(chunked, absl::StrCat("0\r\nA: ", std::string(9000, 'p'))), 413);
}

TEST(WriteHttpHeadTest, TellsOfTheBody) {
  EXPECT_EQ(WriteHttpHead({.status = 405, .allow = "GET"}, 3, false),
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
            "Connection: close\r\nAllow: GET\r\n\r\n");
}

TEST(HttpReaderDeathTest, HasARequestOnceItHasItsHead) {
  if (!WARPCALL_DCHECK_IS_ON) GTEST_SKIP() << "needs WARPCALL_DCHECK";
  const HttpReader reader;
  EXPECT_DEATH(reader.request(), "has_head_");
}

}  // namespace
}  // namespace warpcall
