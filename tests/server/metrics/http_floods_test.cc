// What the port for operators answers to clients that mean no good, or know no better.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/log.h"
#include "server/metrics/http_server.h"
#include "tests/e2e/eventually.h"
#include "tests/server/metrics/raw_http.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kPatienceMs = 60'000;
constexpr char kHealth[] = "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";
// Status line, three headers, an empty line, "ok".
constexpr int kHealthLines = 6;

class HttpFloodsTest : public ::testing::Test {
 protected:
  void Start(absl::Duration request_timeout = absl::Seconds(600)) {
    HttpServer::Options options;
    options.listen = "127.0.0.1:0";
    options.request_timeout = request_timeout;
    options.scrape = [this](MetricsFormat) {
      ++scrapes_;
      return std::string(scrape_bytes_, 'm');
    };
    options.ready = [] { return absl::OkStatus(); };
    auto started = HttpServer::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  RawHttp Connect() { return RawHttp(server_->address()); }
  // The whole reply to one request, after which the server closes.
  std::string Ask(absl::string_view request) {
    RawHttp client = Connect();
    client.Send(request);
    return client.ReadToEnd();
  }
  std::string AskProbe(absl::string_view path) {
    return Ask(absl::StrCat("GET ", path, " HTTP/1.0\r\n\r\n"));
  }
  void ExpectHealthy() {
    for (const char* path : {"/healthz", "/readyz"})
      EXPECT_THAT(AskProbe(path), HasSubstr(" 200 OK\r\n"));
  }
  bool IsHealthy() {
    return absl::StrContains(AskProbe("/healthz"), " 200 OK\r\n") &&
           absl::StrContains(AskProbe("/readyz"), " 200 OK\r\n");
  }

  size_t scrape_bytes_ = 10;
  std::atomic<int> scrapes_{0};
  std::unique_ptr<HttpServer> server_;
};

// With no time limit to help.
TEST_F(HttpFloodsTest, HalfRequestsByTheHundredKeepNoProbeWaiting) {
  Start();
  std::vector<RawHttp> clients;
  for (int i = 0; i < 600; ++i) {
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back().connected());
    clients.back().Send("GET /metr");
    if (i % 50 == 0) ExpectHealthy();
  }
  ExpectHealthy();
  const auto open = std::count_if(clients.begin(), clients.end(),
                                  [](RawHttp& client) { return !client.Closed(0); });
  EXPECT_LE(open, 128);
  EXPECT_GT(open, 0);
  // The youngest is still served.
  clients.back().Send("ics HTTP/1.0\r\n\r\n");
  EXPECT_THAT(clients.back().ReadToEnd(), HasSubstr(" 200 OK\r\n"));
}

TEST_F(HttpFloodsTest, WhoeverIsSlowIsCutOff) {
  Start(absl::Seconds(1));  // far longer than a whole request takes to come, however busy it is
  RawHttp silent = Connect();
  RawHttp half = Connect();
  half.Send("GET /metrics HTT");
  RawHttp body = Connect();
  body.Send("PUT /log_level HTTP/1.1\r\nContent-Length: 5\r\n\r\nde");
  EXPECT_TRUE(silent.Closed(kPatienceMs));
  EXPECT_TRUE(half.Closed(kPatienceMs));
  EXPECT_TRUE(body.Closed(kPatienceMs));
  // A byte now and then is no excuse.
  for (const char* const text : {"x", "\r\n"}) {
    RawHttp drip = Connect();
    for (int i = 0; i < 6000 && !drip.Closed(10); ++i) drip.Send(text);
    EXPECT_TRUE(drip.Closed(0));
  }
  // Others are answered, unless this machine held them up for as long.
  EXPECT_TRUE(Eventually([this] { return IsHealthy(); }));
}

TEST_F(HttpFloodsTest, ARequestMayComeByteByByte) {
  Start();
  RawHttp client = Connect();
  for (const char c : absl::string_view(kHealth)) EXPECT_EQ(client.Send({&c, 1}), 1u);
  EXPECT_THAT(client.ReadLines(kHealthLines), HasSubstr("\r\n\r\nok\n"));
}

TEST_F(HttpFloodsTest, ConnectionsAreKeptAndRequestsComeBackToBack) {
  Start();
  RawHttp client = Connect();
  for (int i = 0; i < 3; ++i) {
    client.Send(kHealth);
    const std::string reply = client.ReadLines(kHealthLines);
    EXPECT_THAT(reply, HasSubstr("Connection: keep-alive\r\n"));
    EXPECT_THAT(reply, HasSubstr("\r\n\r\nok\n"));
  }
  std::string many;
  for (int i = 0; i < 50; ++i) many += kHealth;
  many += "HEAD /metrics HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n";
  client.Send(many);
  const std::string replies = client.ReadToEnd();
  EXPECT_EQ(absl::StrReplaceAll(replies, {{"ok\n", ""}}).size(), replies.size() - 51 * 3);
  EXPECT_THAT(replies,
              HasSubstr("Content-Length: 10\r\nConnection: keep-alive\r\n\r\nHTTP/1.1 200"));
  EXPECT_EQ(scrapes_, 1);
}

TEST_F(HttpFloodsTest, HeadsHaveALimit) {
  Start();
  EXPECT_THAT(Ask(absl::StrCat("GET /healthz HTTP/1.0\r\nX: ", std::string(8000, 'x'), "\r\n\r\n")),
              HasSubstr(" 200 OK"));
  EXPECT_THAT(Ask(absl::StrCat("GET /healthz HTTP/1.0\r\nX: ", std::string(8200, 'x'), "\r\n\r\n")),
              HasSubstr(" 431 "));
  EXPECT_THAT(Ask(absl::StrCat("GET /", std::string(9000, 'x'))), HasSubstr(" 431 "));
  EXPECT_THAT(Ask(std::string(9000, '\n')), HasSubstr(" 431 "));
  RawHttp endless = Connect();
  EXPECT_LT(endless.Send(std::string(64 << 20, 'x')), 64u << 20);
  ExpectHealthy();
}

TEST_F(HttpFloodsTest, BodiesHaveALimitAndOnlyPutsOfTheLevelAreRead) {
  Start();
  const std::string put = "PUT /log_level HTTP/1.1\r\n";
  EXPECT_THAT(Ask(put + "Content-Length: 4097\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask(put + "Transfer-Encoding: chunked\r\n\r\n1001\r\n"), StartsWith("HTTP/1.1 413 "));
  const std::string chunk = absl::StrCat("1000\r\n", std::string(4096, 'x'), "\r\n");
  std::string flood = put + "Transfer-Encoding: chunked\r\n\r\n";
  while (flood.size() < (64 << 20)) flood += chunk;
  RawHttp sender = Connect();
  EXPECT_LT(sender.Send(flood), flood.size());
  // Others are answered as if they had none.
  for (const char* const length : {"Content-Length: 99999999999", "Transfer-Encoding: chunked"}) {
    EXPECT_THAT(Ask(absl::StrCat("GET /healthz HTTP/1.1\r\n", length, "\r\n\r\n")),
                HasSubstr("Connection: close\r\n\r\nok\n"));
    EXPECT_THAT(Ask(absl::StrCat("POST /healthz HTTP/1.1\r\n", length, "\r\n\r\n")),
                StartsWith("HTTP/1.1 405 "));
    EXPECT_THAT(Ask(absl::StrCat("GET /nothing HTTP/1.1\r\n", length, "\r\n\r\n")),
                StartsWith("HTTP/1.1 404 "));
  }
  ExpectHealthy();
}

TEST_F(HttpFloodsTest, TheLevelComesInChunksAndAfterLeaveToSendIt) {
  Start();
  EXPECT_THAT(
      Ask("PUT /log_level HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
          "3\r\nerr\r\n3\r\nor\n\r\n0\r\n\r\n"),
      HasSubstr("\r\n\r\nerror\n"));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
  RawHttp client = Connect();
  client.Send("PUT /log_level HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadLines(2), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("info");
  EXPECT_THAT(client.ReadLines(6), HasSubstr("\r\n\r\ninfo\n"));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

TEST_F(HttpFloodsTest, WhoTakesNoReplyKeepsNobodyWaiting) {
  scrape_bytes_ = 32 << 20;  // more than a socket holds
  Start();
  std::vector<RawHttp> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /metrics HTTP/1.0\r\n\r\n");
  }
  while (scrapes_ < 4) ExpectHealthy();
  ExpectHealthy();
  EXPECT_GT(clients[0].ReadToEnd().size(), scrape_bytes_);
}

}  // namespace
}  // namespace warpcall::testing
