// The port for operators under floods: it answers probes, and memory does not grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "tests/server/metrics/raw_http.h"

namespace warpcall::testing {
namespace {

constexpr double kProbeSecondsMax = 0.1;
constexpr int64_t kGrowthMax = 16 * kMib;

class MetricsPortTest : public ::testing::Test {
 protected:
  // Time until a probe gets its answer, in seconds.
  double SecondsOf(const char* path) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(server_.Get(path), (std::pair<int, std::string>(200, "ok\n")));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Half of the probes are prompt, whatever the flood, where latencies are compared; none is lost.
  void ExpectPromptProbes() {
    std::vector<double> seconds;
    for (int i = 0; i < 15; ++i)
      for (const char* const path : {"/healthz", "/readyz"}) seconds.push_back(SecondsOf(path));
    std::nth_element(seconds.begin(), seconds.begin() + 15, seconds.end());
    if (LatenciesAreCompared()) {
      EXPECT_LE(seconds[15], kProbeSecondsMax);
    }
  }

  ServerProcess server_;
};

TEST_F(MetricsPortTest, ProbesAreAnsweredBesideHundredsOfHalfRequests) {
  std::vector<RawHttp> clients;
  for (int i = 0; i < 600; ++i) {
    clients.emplace_back(server_.metrics_address());
    clients.back().Send("GET /metrics HT");
  }
  ExpectPromptProbes();
  EXPECT_EQ(server_.Get("/metrics").first, 200);
  EXPECT_TRUE(Execute(Connect(server_.address()), Request("gelu", {FloatTensor(4)})).status.ok());
  // The server closes connections that do not go on.
  for (RawHttp& client : clients) EXPECT_TRUE(client.Closed(60'000));
}

// They hold the replies of one rendering or a few, and no thread.
TEST_F(MetricsPortTest, ProbesAreAnsweredBesideHundredsThatReadNoReply) {
  std::vector<RawHttp> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(server_.metrics_address());
    clients.back().Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  ExpectPromptProbes();
  EXPECT_EQ(server_.Get("/metrics").first, 200);
}

// A proxy that lets only GET pass takes the rest for the first request's body.
TEST_F(MetricsPortTest, NoBodyRunsAsARequest) {
  const std::string inner =
      "PUT /log_level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nerror";
  for (const std::string& fields :
       {absl::StrCat("Content-Length : ", inner.size(), "\r\n\r\n", inner),
        absl::StrCat("Content-Length: 0\r\nContent-Length: ", inner.size(), "\r\n\r\n", inner),
        absl::StrCat("Transfer-Encoding : chunked\r\n\r\n", absl::Hex(inner.size()), "\r\n", inner,
                     "\r\n0\r\n\r\n")}) {
    RawHttp client(server_.metrics_address());
    client.Send(absl::StrCat("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", fields));
    EXPECT_EQ(client.ReadToEnd().substr(0, 13), "HTTP/1.1 400 ") << fields;
  }
  EXPECT_EQ(server_.Get("/log_level").second, "info\n");
}

TEST_F(MetricsPortTest, BodiesTakeNoMemory) {
  EXPECT_EQ(server_.Get("/metrics").first, 200);
  const int64_t before = server_.PeakResidentBytes();
  const std::string megabyte(kMib, 'x');
  for (const char* const start : {"PUT /log_level", "GET /metrics", "POST /healthz", "PUT /else"}) {
    for (const char* const length : {"Transfer-Encoding: chunked", "Content-Length: 419430400"}) {
      RawHttp client(server_.metrics_address());
      client.Send(absl::StrCat(start, " HTTP/1.1\r\nHost: localhost\r\n", length, "\r\n\r\n"));
      const bool chunked = absl::string_view(length).front() == 'T';
      for (int i = 0; i < 400; ++i) {
        if (chunked) client.Send("100000\r\n");
        if (client.Send(megabyte) < megabyte.size()) break;
        if (chunked) client.Send("\r\n");
      }
    }
    ExpectPromptProbes();
  }
  EXPECT_LT(server_.PeakResidentBytes() - before, kGrowthMax);
  EXPECT_EQ(server_.Get("/log_level").second, "info\n");
  EXPECT_EQ(server_.Stop(), 0);
}

}  // namespace
}  // namespace warpcall::testing
