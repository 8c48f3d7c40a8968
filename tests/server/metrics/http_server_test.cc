#include "server/metrics/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/log/log.h"
#include "server/metrics/http_connection.h"
#include "server/metrics/log_level_route.h"
#include "tests/server/foreign_addresses.h"
#include "tests/server/metrics/raw_http.h"
#include "tests/server/without_ipv6.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  static HttpServer::Options Options() {
    HttpServer::Options options;
    options.listen = "127.0.0.1:0";
    options.scrape = [](MetricsFormat) { return "m 1\n"; };
    options.ready = [] { return "ok"; };
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

TEST_F(HttpServerTest, WithoutIpv6AllAddressesAreThoseOfIpv4) {
  const int served = RunWithoutIpv6([] {
    HttpServer::Options options = Options();
    options.listen = "[::]:0";
    return HttpServer::Start(std::move(options)).ok();
  });
  if (served == kNoFilter) GTEST_SKIP() << "this system filters no process's calls";
  EXPECT_EQ(served, 0);
}

TEST_F(HttpServerTest, ServesMetricsAsPrometheusReadsThem) {
  const auto server = Start(Options());
  const httplib::Result reply = ClientOf(*server).Get("/metrics");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "m 1\n");
  EXPECT_THAT(reply->get_header_value("Content-Type"), StartsWith("text/plain; version=0.0.4"));
}

TEST_F(HttpServerTest, ServesOpenMetricsToThoseWhoAccept) {
  HttpServer::Options options = Options();
  options.scrape = [](MetricsFormat format) {
    return format == MetricsFormat::kOpenMetrics ? "open" : "plain";
  };
  const auto server = Start(std::move(options));
  const httplib::Result reply =
      ClientOf(*server).Get("/metrics", {{"Accept", "application/openmetrics-text;version=1.0.0"}});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, "open");
  EXPECT_EQ(reply->get_header_value("Content-Type"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_EQ(ClientOf(*server).Get("/metrics", {{"Accept", "*/*"}})->body, "plain");
}

TEST_F(HttpServerTest, ReadinessFollowsTheCallback) {
  std::atomic<bool> ready{true};
  HttpServer::Options options = Options();
  options.ready = [&ready]() -> absl::StatusOr<std::string> {
    if (!ready) return absl::UnavailableError("draining for 5 s");
    return "ok; some rows are not tried yet";
  };
  const auto server = Start(std::move(options));
  const httplib::Result is_ready = ClientOf(*server).Get("/readyz");
  EXPECT_EQ(is_ready->status, 200);
  EXPECT_EQ(is_ready->body, "ok; some rows are not tried yet\n");
  ready = false;
  const httplib::Result reply = ClientOf(*server).Get("/readyz");
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(reply->body, "draining for 5 s\n");
  EXPECT_EQ(ClientOf(*server).Get("/healthz")->status, 200);
}

// The text behind a gzip member; "" where it is none.
std::string Gunzip(std::string bytes) {
  z_stream stream = {};
  inflateInit2(&stream, 15 + 16);
  std::string text(size_t{1} << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  const int result = inflate(&stream, Z_FINISH);
  text.resize(result == Z_STREAM_END ? stream.total_out : 0);
  inflateEnd(&stream);
  return text;
}

TEST_F(HttpServerTest, CompressesMetricsForThoseWhoTakeGzip) {
  HttpServer::Options options = Options();
  std::string text;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&text, "metric{row=\"", i, "\"} ", i * i, "\n");
  options.scrape = [&text](MetricsFormat) { return text; };
  const auto server = Start(std::move(options));
  httplib::Client client = ClientOf(*server);
  client.set_decompress(false);
  const httplib::Result packed = client.Get("/metrics", {{"Accept-Encoding", "br, GZIP;q=0.5"}});
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->get_header_value("Content-Encoding"), "gzip");
  EXPECT_EQ(packed->get_header_value("Vary"), "Accept, Accept-Encoding");
  EXPECT_LT(packed->body.size(), text.size() / 3);
  EXPECT_EQ(Gunzip(packed->body), text);
  for (const char* const accepted : {"", "identity", "gzip;q=0", "br"}) {
    const httplib::Result plain = client.Get("/metrics", {{"Accept-Encoding", accepted}});
    ASSERT_TRUE(plain);
    EXPECT_FALSE(plain->has_header("Content-Encoding")) << accepted;
    EXPECT_EQ(plain->get_header_value("Vary"), "Accept, Accept-Encoding");
    EXPECT_EQ(plain->body, text) << accepted;
  }
  // Small bodies are not worth it.
  const httplib::Result health = client.Get("/healthz", {{"Accept-Encoding", "gzip"}});
  EXPECT_EQ(health->body, "ok\n");
  EXPECT_FALSE(health->has_header("Content-Encoding"));
}

TEST_F(HttpServerTest, ServesTheStatusAsAPageAndAsJson) {
  HttpServer::Options options = Options();
  options.status = [] {
    ServerStatus status;
    status.build.version = "9.8.7";
    return status;
  };
  const auto server = Start(std::move(options));
  httplib::Client client = ClientOf(*server);
  const httplib::Result page = client.Get("/?anything");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(page->get_header_value("Content-Security-Policy"),
              StartsWith("default-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(page->body, HasSubstr("<h1>warpcalld 9.8.7</h1>"));
  EXPECT_THAT(page->body, ::testing::EndsWith("</html>\n"));
  const httplib::Result json = client.Get("/status.json");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->get_header_value("Content-Type"), "application/json");
  EXPECT_THAT(json->body, StartsWith("{\"version\":\"9.8.7\","));
  for (const httplib::Result& reply : {std::cref(page), std::cref(json)}) {
    EXPECT_EQ(reply->get_header_value("Cache-Control"), "no-store");
    EXPECT_EQ(reply->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_FALSE(reply->has_header("Set-Cookie"));
  }
  const httplib::Result head = client.Head("/");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
  EXPECT_TRUE(head->has_header("Content-Security-Policy"));
  client.set_decompress(false);
  const httplib::Result packed = client.Get("/", {{"Accept-Encoding", "gzip"}});
  EXPECT_EQ(Gunzip(packed->body), page->body);
  EXPECT_EQ(client.Post("/", "x", "text/plain")->status, 405);
  EXPECT_FALSE(client.Get("/metrics")->has_header("Content-Security-Policy"));
}

TEST_F(HttpServerTest, ScrapesGiveWayToRequests) {
  std::atomic<int> nice{-1};
  HttpServer::Options options = Options();
  options.scrape = [&nice](MetricsFormat) {
    nice = getpriority(PRIO_PROCESS, 0);
    return "m 1\n";
  };
  const int before = getpriority(PRIO_PROCESS, 0);
  const auto server = Start(std::move(options));
  ASSERT_TRUE(ClientOf(*server).Get("/metrics"));
  EXPECT_EQ(nice, std::max(before, 5));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
}

// Sets the level back.
class LogLevelTest : public HttpServerTest {
 protected:
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(LogLevelTest, IsShownAndChanged) {
  const auto server = Start(Options());
  EXPECT_EQ(ClientOf(*server).Get("/log_level")->body, "info\n");
  for (const char* level : {"debug", "error", "warning", "info"}) {
    ::testing::internal::CaptureStderr();
    const std::string before = ClientOf(*server).Get("/log_level")->body;
    const httplib::Result reply = ClientOf(*server).Put("/log_level", level, "text/plain");
    const std::string log = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, std::string(level) + "\n");
    EXPECT_EQ(ClientOf(*server).Get("/log_level")->body, std::string(level) + "\n");
    // Whatever the level is and was.
    EXPECT_THAT(
        log, HasSubstr("level=info msg=\"log level changed\" from=" +
                       before.substr(0, before.size() - 1) + " to=" + level + " peer=127.0.0.1\n"));
  }
  // `curl -d` and `echo | curl -T-` send such requests.
  EXPECT_EQ(
      ClientOf(*server).Put("/log_level", "error\n", "application/x-www-form-urlencoded")->status,
      200);
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
}

TEST_F(LogLevelTest, UnknownNamesAndOtherMethodsChangeNothing) {
  const auto server = Start(Options());
  for (const char* name : {"loud", "", "DEBUG", "debug,info", "0"}) {
    const httplib::Result reply = ClientOf(*server).Put("/log_level", name, "text/plain");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, 400) << name;
    EXPECT_THAT(reply->body,
                ::testing::StartsWith(std::string("\"") + name +
                                      "\" is unknown; known: debug, info, warning, error"));
  }
  const httplib::Result post = ClientOf(*server).Post("/log_level", "debug", "text/plain");
  ASSERT_TRUE(post);
  EXPECT_EQ(post->status, 405);
  EXPECT_EQ(post->get_header_value("Allow"), "GET, HEAD, PUT");
  EXPECT_EQ(ClientOf(*server).Put("/metrics", "debug", "text/plain")->status, 405);
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

HttpRequest RequestOf(const std::vector<std::string>& hosts) {
  HttpRequest request;
  request.hosts = hosts;
  request.body = "debug";
  return request;
}

TEST_F(LogLevelTest, IsForClientsOnThisMachine) {
  for (const char* peer : {"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "128.0.0.1", "::", "",
                           "127.0.0.1x", "0.0.0.0"}) {
    EXPECT_EQ(ChangeLogLevel(RequestOf({"localhost"}), peer).status, 403) << peer;
    EXPECT_EQ(ShowLogLevel(RequestOf({"localhost"}), peer).status, 403) << peer;
  }
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
  for (const char* peer : {"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"}) {
    SetLogLevel(LogLevel::kInfo);
    EXPECT_EQ(ChangeLogLevel(RequestOf({"localhost"}), peer).status, 200) << peer;
    EXPECT_EQ(CurrentLogLevel(), LogLevel::kDebug) << peer;
  }
}

// A browser on this machine sends the name of the page that had it resolve to 127.0.0.1.
TEST_F(LogLevelTest, IsForRequestsThatNameLoopback) {
  for (const char* host :
       {"evil.example", "evil.example:9470", "localhost.evil.example", "127.0.0.1.evil.example:80",
        "evil.example:127.0.0.1", "192.0.2.1", "[2001:db8::1]:80", "", ":80", "[::1", "::1]:80",
        "localhost:x", "user@localhost", "0.0.0.0", "[::]", "[localhost]x", "localhost@evil:80"}) {
    EXPECT_EQ(ChangeLogLevel(RequestOf({host}), "127.0.0.1").status, 403) << host;
    EXPECT_EQ(ShowLogLevel(RequestOf({host}), "127.0.0.1").status, 403) << host;
    EXPECT_EQ(ChangeLogLevel(RequestOf({"localhost", host}), "127.0.0.1").status, 403) << host;
  }
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
  for (const char* host : {"localhost", "LocalHost:9470", "127.0.0.1", "127.0.0.1:9470",
                           "127.9.9.9:1", "[::1]", "[::1]:9470"}) {
    SetLogLevel(LogLevel::kInfo);
    EXPECT_EQ(ChangeLogLevel(RequestOf({host}), "127.0.0.1").status, 200) << host;
    EXPECT_EQ(CurrentLogLevel(), LogLevel::kDebug) << host;
  }
  SetLogLevel(LogLevel::kInfo);
  EXPECT_EQ(ChangeLogLevel(RequestOf({}), "127.0.0.1").status, 200);  // HTTP/1.0
  SetLogLevel(LogLevel::kInfo);
  const auto server = Start(Options());
  const httplib::Result reply = ClientOf(*server).Put(
      "/log_level", httplib::Headers{{"Host", "evil.example"}}, "debug", "text/plain");
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 403);
  EXPECT_THAT(reply->body, HasSubstr("names the host \"evil.example\""));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

// The IPv4 addresses of this machine that others reach.
std::vector<std::string> OutsideAddresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    found.emplace_back(inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)));
  }
  freeifaddrs(list);
  return found;
}

TEST_F(LogLevelTest, IsRefusedToAConnectionFromOutside) {
  const std::vector<std::string> outside = OutsideAddresses();
  if (outside.empty()) GTEST_SKIP() << "this machine has no address but loopback's";
  HttpServer::Options options = Options();
  options.listen = "0.0.0.0:0";
  const auto server = Start(std::move(options));
  httplib::Client client(outside.back(), std::stoi(server->address().substr(8)));
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  client.set_default_headers({{"Host", "localhost"}});
  EXPECT_EQ(client.Get("/log_level")->status, 403);
  const httplib::Result reply = client.Put("/log_level", "debug", "text/plain");
  EXPECT_EQ(reply->status, 403);
  // The system decides which one: Docker makes calls to its bridge come from another address.
  std::vector<::testing::Matcher<std::string>> named;
  for (const std::string& address : outside)
    named.emplace_back(HasSubstr(absl::StrCat("which ", address, " is not")));
  EXPECT_THAT(reply->body, ::testing::AnyOfArray(named));
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kInfo);
}

// Before a byte of a body has come: it is for the body that they would have to be let in.
TEST_F(LogLevelTest, WhoIsOutsideIsRefusedBeforeTheBody) {
  const std::vector<std::string> outside = OutsideAddresses();
  if (outside.empty()) GTEST_SKIP() << "this machine has no address but loopback's";
  HttpServer::Options options = Options();
  options.listen = "0.0.0.0:0";
  options.request_timeout = absl::Seconds(600);
  const auto server = Start(std::move(options));
  for (const char* length : {"Content-Length: 5", "Transfer-Encoding: chunked"}) {
    RawHttp client(absl::StrCat(outside.back(), ":", server->address().substr(8)));
    client.Send(absl::StrCat("PUT /log_level HTTP/1.1\r\nHost: localhost\r\n", length, "\r\n\r\n"));
    EXPECT_THAT(client.ReadLines(1), StartsWith("HTTP/1.1 403 ")) << length;
  }
}

TEST_F(HttpServerTest, RefusesOtherPathsAndMethods) {
  const auto server = Start(Options());
  for (const char* path : {"/metrics/", "/metricsx", "/../etc/passwd", "/healthz/x", "//"}) {
    const httplib::Result reply = ClientOf(*server).Get(path);
    EXPECT_EQ(reply->status, 404) << path;
    EXPECT_EQ(reply->body, "unknown path; / shows the server and links to what else is here\n");
  }
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
  std::vector<std::string> addresses = {first->address()};
  // RFC 5737 keeps this network for documents.
  if (!MayListenAtForeignAddresses()) addresses.push_back("203.0.113.1:80");
  for (const std::string& address : addresses) {
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

class ScrapeHandler final : public HttpHandler {
 public:
  bool WantsBody(const HttpRequest&, const std::string&) const override { return false; }
  HttpReply Answer(const HttpRequest&, const std::string&) const override {
    return {.scrape = {{Document::kPrometheus, false}}};
  }
};

TEST(HttpConnectionTest, ARenderingMayTakeLongAndAClientMayNot) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const HttpConnection::Limits limits{
      .request_ns = 5, .reply_ns = 10, .idle_ns = 60, .goodbye_ns = 1};
  HttpConnection connection(ends[0], "", limits, 0);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
  ASSERT_EQ(write(ends[1], request.data(), request.size()), std::ssize(request));
  ASSERT_TRUE(connection.Advance(ScrapeHandler(), 4));
  ASSERT_TRUE(connection.waits_for().has_value());
  EXPECT_EQ(connection.deadline_ns(), std::numeric_limits<int64_t>::max());
  connection.Serve(std::make_shared<const std::string>("m 1\n"), 1000);
  EXPECT_EQ(connection.deadline_ns(), 1010);
  EXPECT_TRUE(connection.Advance(ScrapeHandler(), 1001));
  char reply[1000];
  const ssize_t bytes = read(ends[1], reply, sizeof(reply));
  EXPECT_THAT(std::string(reply, std::max<ssize_t>(bytes, 0)), HasSubstr("\r\n\r\nm 1\n"));
  close(ends[1]);
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
