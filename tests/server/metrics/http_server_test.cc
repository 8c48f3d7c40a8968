#include "server/metrics/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/metrics/prometheus_sink.h"
#include "tests/server/metrics/sink_fixture.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  static HttpServer::Options Options() {
    HttpServer::Options options;
    options.listen = "127.0.0.1:0";
    options.scrape = [] { return "m 1\n"; };
    options.ready = [] { return absl::OkStatus(); };
    return options;
  }

  static std::unique_ptr<HttpServer> Start(HttpServer::Options options) {
    absl::StatusOr<std::unique_ptr<HttpServer>> started = HttpServer::Start(std::move(options));
    EXPECT_TRUE(started.ok()) << started.status();
    return started.ok() ? *std::move(started) : nullptr;
  }

  static httplib::Client ClientOf(const HttpServer& server) {
    return httplib::Client("http://" + server.address());
  }
};

TEST_F(HttpServerTest, ServesMetricsAsPrometheusReadsThem) {
  const auto server = Start(Options());
  const httplib::Result reply = ClientOf(*server).Get("/metrics");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "m 1\n");
  EXPECT_THAT(reply->get_header_value("Content-Type"), StartsWith("text/plain; version=0.0.4"));
}

TEST_F(HttpServerTest, ServesWhatTheSinkRenders) {
  PrometheusSink sink(MadeUpRegistry(), SinkOptions());
  sink.Record(RunTrace(kBeta, kBetaPlain, kCpuDevice));
  HttpServer::Options options = Options();
  options.scrape = [&sink] { return sink.Scrape(); };
  const auto server = Start(std::move(options));
  const MetricsText text = ParseMetricsText(ClientOf(*server).Get("/metrics")->body);
  EXPECT_EQ(
      text.samples.at(R"(warpcall_requests_total{code="OK",implementation="plain",kernel="beta"})"),
      1);
}

TEST_F(HttpServerTest, ReadinessFollowsTheCallback) {
  std::atomic<bool> ready{true};
  HttpServer::Options options = Options();
  options.ready = [&ready] {
    return ready ? absl::OkStatus() : absl::UnavailableError("draining for 5 s");
  };
  const auto server = Start(std::move(options));
  EXPECT_EQ(ClientOf(*server).Get("/readyz")->status, 200);
  ready = false;
  const httplib::Result reply = ClientOf(*server).Get("/readyz");
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(reply->body, "draining for 5 s\n");
  EXPECT_EQ(ClientOf(*server).Get("/healthz")->status, 200);
}

TEST_F(HttpServerTest, RefusesOtherPathsAndMethods) {
  const auto server = Start(Options());
  for (const char* path : {"/", "/metrics/", "/metricsx", "/../etc/passwd", "/healthz/x", "//"})
    EXPECT_EQ(ClientOf(*server).Get(path)->status, 404) << path;
  const httplib::Result post = ClientOf(*server).Post("/metrics", "x", "text/plain");
  ASSERT_TRUE(post);
  EXPECT_EQ(post->status, 405);
  EXPECT_EQ(post->get_header_value("Allow"), "GET, HEAD");
  const httplib::Result head = ClientOf(*server).Head("/metrics");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
}

TEST_F(HttpServerTest, NamesTheAddressThatItCannotBind) {
  const auto first = Start(Options());
  for (const std::string& address : {first->address(), std::string("203.0.113.1:80")}) {
    HttpServer::Options options = Options();
    options.listen = address;
    const auto second = HttpServer::Start(std::move(options));
    EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
  }
  for (const char* malformed : {"", "localhost", ":80", "localhost:", "localhost:65536", "h:-1"}) {
    HttpServer::Options options = Options();
    options.listen = malformed;
    EXPECT_EQ(HttpServer::Start(std::move(options)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << malformed;
  }
}

TEST_F(HttpServerTest, ServesIpv6) {
  HttpServer::Options options = Options();
  options.listen = "[::1]:0";
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool usable = bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
  close(probe);
  if (!usable) GTEST_SKIP() << "this machine has no IPv6 loopback address";
  const auto server = Start(std::move(options));
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(server->address(), StartsWith("[::1]:"));
  EXPECT_EQ(ClientOf(*server).Get("/healthz")->status, 200);
}

TEST_F(HttpServerTest, ServesManyAtOnceAndStopsWhileTheyCome) {
  auto server = Start(Options());
  const std::string address = "http://" + server->address();
  std::atomic<int> served{0};
  std::atomic<bool> stopped{false};
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      while (!stopped) {
        const httplib::Result reply = httplib::Client(address).Get("/metrics");
        if (reply && reply->status == 200) ++served;
      }
    });
  }
  while (served < 100) std::this_thread::yield();
  server.reset();
  stopped = true;
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace warpcall::testing
