// Answers of the operators' port to hostile or broken clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "server/log/log.h"
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
      if (held_ != nullptr) held_->WaitForNotification();
      return std::string(scrape_bytes_, 'm');
    };
    options.ready = [] { return "ok"; };
    auto started = HttpServer::Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  ~HttpFloodsTest() override {
    if (held_ != nullptr && !held_->HasBeenNotified()) held_->Notify();
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
  std::unique_ptr<absl::Notification> held_;  // set before Start: renderings wait for it
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
  body.Send("PUT /log_level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nde");
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
  many +=
      "HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\nGET /readyz HTTP/1.1\r\nHost: h\r\nConnection: "
      "close\r\n\r\n";
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
  EXPECT_THAT(Ask(std::string(9000, '\n')), HasSubstr(" 400 "));
  RawHttp endless = Connect();
  EXPECT_LT(endless.Send(std::string(64 << 20, 'x')), 64u << 20);
  ExpectHealthy();
}

TEST_F(HttpFloodsTest, BodiesHaveALimitAndOnlyPutsOfTheLevelAreRead) {
  Start();
  const std::string put = "PUT /log_level HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_THAT(Ask(put + "Content-Length: 4097\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Ask(put + "Transfer-Encoding: chunked\r\n\r\n1001\r\n"), StartsWith("HTTP/1.1 413 "));
  const std::string chunk = absl::StrCat("1000\r\n", std::string(4096, 'x'), "\r\n");
  std::string flood = put + "Transfer-Encoding: chunked\r\n\r\n";
  while (flood.size() < (64 << 20)) flood += chunk;
  RawHttp sender = Connect();
  EXPECT_LT(sender.Send(flood), flood.size());
  // Others are answered as if they had none.
  for (const char* const length : {"Content-Length: 99999999999", "Transfer-Encoding: chunked"}) {
    EXPECT_THAT(Ask(absl::StrCat("GET /healthz HTTP/1.1\r\nHost: h\r\n", length, "\r\n\r\n")),
                HasSubstr("Connection: close\r\n\r\nok\n"));
    EXPECT_THAT(Ask(absl::StrCat("POST /healthz HTTP/1.1\r\nHost: h\r\n", length, "\r\n\r\n")),
                StartsWith("HTTP/1.1 405 "));
    EXPECT_THAT(Ask(absl::StrCat("GET /nothing HTTP/1.1\r\nHost: h\r\n", length, "\r\n\r\n")),
                StartsWith("HTTP/1.1 404 "));
  }
  ExpectHealthy();
}

TEST_F(HttpFloodsTest, TheLevelComesInChunksAndAfterLeaveToSendIt) {
  Start();
  EXPECT_THAT(Ask("PUT /log_level HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                  "chunked\r\nConnection: close\r\n\r\n"
                  "3;x=y\r\nerr\r\n03\r\nor\n\r\n0\r\n\r\n"),
              HasSubstr("\r\n\r\nerror\n"));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
  RawHttp client = Connect();
  client.Send(
      "PUT /log_level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadLines(2), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("info");
  EXPECT_THAT(client.ReadLines(6), HasSubstr("\r\n\r\ninfo\n"));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

// A proxy in front may read each of these as one request and its body; a server that reads less
// runs the body as a second request.
TEST_F(HttpFloodsTest, NoBodyRunsAsARequest) {
  Start();
  const std::string inner =
      "PUT /log_level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nerror";
  const std::string length = absl::StrCat(inner.size());
  const std::string chunk =
      absl::StrCat("\r\n\r\n", absl::Hex(inner.size()), "\r\n", inner, "\r\n0\r\n\r\n");
  const std::string fields[] = {
      absl::StrCat("Content-Length : ", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length\t: ", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length\v: ", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length: 0\r\nContent-Length: ", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length: ", length, "\r\nContent-Length: 0\r\n\r\n", inner),
      absl::StrCat("Content-Length: 0, ", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length: +", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length: 0x", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length: -1\r\n\r\n", inner),
      absl::StrCat("Content-Length:\r\n\r\n", inner),
      absl::StrCat("Content-Length: ", absl::string_view("0\0", 2), length, "\r\n\r\n", inner),
      absl::StrCat("X: a\rContent-Length: ", length, "\r\n\r\n", inner),
      absl::StrCat(" Content-Length: ", length, "\r\n\r\n", inner),
      absl::StrCat("Content-Length:\r\n ", length, "\r\n\r\n", inner),
      absl::StrCat("X: a\r\n\tContent-Length: ", length, "\r\n\r\n", inner),
      absl::StrCat("Transfer-Encoding : chunked", chunk),
      absl::StrCat("Transfer-Encoding: xchunked", chunk),
      absl::StrCat("Transfer-Encoding: gzip", chunk),
      absl::StrCat("Transfer-Encoding: gzip, chunked", chunk),
      absl::StrCat("Transfer-Encoding: identity", chunk),
      absl::StrCat("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", chunk),
      absl::StrCat("Transfer-Encoding: chunked\r\nContent-Length: 5", chunk),
      absl::StrCat("Content-Length: 5\r\nTransfer-Encoding: chunked", chunk),
  };
  for (const std::string& field : fields) {
    for (const char* const line :
         {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "POST /x HTTP/1.1\r\nHost: localhost\r\n",
          "PUT /log_level HTTP/1.1\r\nHost: localhost\r\n"}) {
      const std::string reply = Ask(absl::StrCat(line, field));
      ASSERT_TRUE(absl::StartsWith(reply, "HTTP/1.1 400 ") ||
                  absl::StartsWith(reply, "HTTP/1.1 501 "))
          << line << field << reply;
      ASSERT_FALSE(absl::StrContains(reply, "HTTP/1.1 200 ")) << line << field << reply;
    }
  }
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

TEST_F(HttpFloodsTest, ChunksHavePlainSizes) {
  Start();
  for (const char* const size :
       {"0x5", "+5", "-5", " 5", "5 ", "5g", "", "5;\x01", "10000000000000005"}) {
    const std::string reply =
        Ask(absl::StrCat("PUT /log_level HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
                         "\r\n\r\n",
                         size, "\r\nerror\r\n0\r\n\r\n"));
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 400 ")) << size;
  }
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

TEST_F(HttpFloodsTest, TargetsMayBeAbsolute) {
  Start();
  for (const char* const target : {"http://h/healthz", "HTTP://h:80/healthz?x=1",
                                   "https://h/readyz", "http://h", "http://h?/metrics"})
    EXPECT_THAT(AskProbe(target), HasSubstr(" 200 OK\r\n")) << target;
  for (const char* const target : {"http:///nothing", "ftp://h/healthz", "*"})
    EXPECT_THAT(AskProbe(target), HasSubstr(" 404 Not Found\r\n")) << target;
  // The name counts wherever it stands.
  EXPECT_THAT(Ask("GET http://evil.example/log_level HTTP/1.1\r\nHost: localhost\r\n"
                  "Connection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
}

TEST_F(HttpFloodsTest, RenderingsKeepNoProbeWaitingAndAreShared) {
  held_ = std::make_unique<absl::Notification>();
  Start();
  std::vector<RawHttp> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(Connect());
    clients.back().Send(absl::StrCat(i % 2 == 0 ? "GET" : "HEAD", " /metrics HTTP/1.0\r\n\r\n"));
    ExpectHealthy();
    if (i == 0) ASSERT_TRUE(Eventually([this] { return scrapes_ == 1; }));
  }
  EXPECT_EQ(scrapes_, 1);
  held_->Notify();
  for (RawHttp& client : clients) EXPECT_THAT(client.ReadToEnd(), HasSubstr(" 200 OK\r\n"));
  // All others waited for the second scrape; one whose bytes were late may have had a third.
  EXPECT_GE(scrapes_, 2);
  EXPECT_LE(scrapes_, 3);
}

TEST_F(HttpFloodsTest, WhoTakesNoReplyKeepsNobodyWaiting) {
  scrape_bytes_ = 32 << 20;  // more than a socket holds
  Start();
  std::vector<RawHttp> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /metrics HTTP/1.0\r\n\r\n");
  }
  while (scrapes_ < 1) ExpectHealthy();
  ExpectHealthy();
  for (RawHttp& client : clients) EXPECT_GT(client.ReadToEnd().size(), scrape_bytes_);
}

// Clients that read nothing hold sixteen renderings, whatever each has.
TEST_F(HttpFloodsTest, SlowReadersHoldFewRenderings) {
  scrape_bytes_ = 32 << 20;
  Start();
  std::vector<RawHttp> clients;
  for (int i = 0; i < 17; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /metrics HTTP/1.0\r\n\r\n");
    EXPECT_THAT(clients.back().ReadLines(1), HasSubstr(" 200 OK"));  // so each has one of its own
  }
  EXPECT_EQ(scrapes_, 17);
  EXPECT_LT(clients[0].ReadToEnd().size(), scrape_bytes_);
  EXPECT_GT(clients[16].ReadToEnd().size(), scrape_bytes_);
}

TEST_F(HttpFloodsTest, OneAddressTakesNoConnectionFromOthers) {
  Start();
  RawHttp other;
  other.Connect(server_->address(), "127.0.0.2");
  ASSERT_TRUE(other.connected());
  std::vector<RawHttp> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /metr");
  }
  ExpectHealthy();
  const auto open = std::count_if(clients.begin(), clients.end(),
                                  [](RawHttp& client) { return !client.Closed(0); });
  EXPECT_LE(open, 64);
  other.Send(kHealth);
  EXPECT_THAT(other.ReadLines(kHealthLines), HasSubstr("\r\n\r\nok\n"));
}

// Takes all descriptors that the process may have, until its destructor.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit few = {static_cast<rlim_t>(next) + 16, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int taken; (taken = dup(STDERR_FILENO)) >= 0;) taken_.push_back(taken);
  }
  ~NoDescriptors() {
    for (const int taken : taken_) close(taken);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_;
  std::vector<int> taken_;
};

TEST_F(HttpFloodsTest, WithoutDescriptorsTheListenerStays) {
  Start();  // no old connection's descriptor can serve
  RawHttp client;
  {
    const NoDescriptors none;
    EXPECT_EQ(dup(STDERR_FILENO), -1);
    client.Connect(server_->address());
    ASSERT_TRUE(client.connected());
    client.Send("GET /healthz HTTP/1.0\r\n\r\n");
    EXPECT_FALSE(client.Readable(500));  // accept fails several times meanwhile
  }
  EXPECT_THAT(client.ReadToEnd(), HasSubstr(" 200 OK\r\n"));
  EXPECT_TRUE(Eventually([this] { return IsHealthy(); }));
}

}  // namespace
}  // namespace warpcall::testing
